#include "backends/cpu/onednn_matmul.h"

#include <omp.h>

#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "backends/cpu/kernel.h"
#include "exec/shutdown.h"

namespace clikart::cpu {
namespace {

// oneDNN opens an OpenMP team wherever the calling thread's setting allows one, when it makes a kernel as when it runs
// it.  Pieces are our pool's business, and a kernel made under another setting gives other bits.
class OneThread {
public:
    OneThread() : before_(omp_get_max_threads()) {
        if (before_ != 1) omp_set_num_threads(1);
    }
    ~OneThread() {
        if (before_ != 1) omp_set_num_threads(before_);
    }

private:
    const int before_;
};

using dnnl::memory;

// Never destroyed: kernels may still run while static destructors do.
const dnnl::engine& engine() {
    static const dnnl::engine& cpu = *new dnnl::engine(dnnl::engine::kind::cpu, 0);
    return cpu;
}

dnnl::stream& stream() {
    thread_local dnnl::stream stream(engine());
    return stream;
}

class OneDnnProduct final : public Product {
public:
    explicit OneDnnProduct(const ProductShape& s) {
        const auto f32 = memory::data_type::f32;
        const memory::desc a({s.m, s.k}, f32, {s.a_row, s.a_column}), c({s.m, s.n}, f32, {s.c_row, 1});
        plain_b_ = memory::desc({s.k, s.n}, f32, {s.b_row, s.b_column});
        dnnl::primitive_attr attr;
        attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        const auto b = s.packed ? memory::desc({s.k, s.n}, f32, memory::format_tag::any) : plain_b_;
        description_ = dnnl::matmul::primitive_desc(engine(), a, b, c, attr);
        matmul_ = dnnl::matmul(description_);
        if (s.packed) reorder_ = dnnl::reorder({engine(), plain_b_, engine(), description_.weights_desc()});
    }
    size_t packed_bytes() const override { return description_.weights_desc().get_size(); }
    void pack(const float* b, void* packed) const override {
        const OneThread guard;
        memory from(plain_b_, engine(), const_cast<float*>(b)), to(description_.weights_desc(), engine(), packed);
        reorder_.execute(stream(), from, to);
    }
    void run(const float* a, const void* b, float* c) const override {
        const OneThread guard;
        const Scratch scratch(std::max<size_t>(1, description_.scratchpad_desc().get_size()));
        matmul_.execute(stream(), {{DNNL_ARG_SRC, memory(description_.src_desc(), engine(), const_cast<float*>(a))},
                                   {DNNL_ARG_WEIGHTS, memory(description_.weights_desc(), engine(), const_cast<void*>(b))},
                                   {DNNL_ARG_DST, memory(description_.dst_desc(), engine(), c)},
                                   {DNNL_ARG_SCRATCHPAD, memory(description_.scratchpad_desc(), engine(), scratch.as<void>())}});
    }

private:
    memory::desc plain_b_;
    dnnl::matmul::primitive_desc description_;
    dnnl::matmul matmul_;
    dnnl::reorder reorder_;
};

struct Hash {
    size_t operator()(const ProductShape& s) const noexcept {
        size_t h = s.packed;
        for (const int64_t v : {s.m, s.n, s.k, s.a_row, s.a_column, s.b_row, s.b_column, s.c_row}) h = h * 0x9E3779B97F4A7C15u + static_cast<size_t>(v);
        return h;
    }
};

constexpr size_t kCachedKernels = 512;  // a kernel is some 10 KB of code; a model has a few dozen shapes

}  // namespace

std::shared_ptr<const Product> Product::find(const ProductShape& shape) {
    static std::mutex& mutex = *new std::mutex;  // guards the cache
    static auto& cache = *new std::unordered_map<ProductShape, std::shared_ptr<const Product>, Hash>;
    {
        std::lock_guard lock(mutex);
        if (const auto it = cache.find(shape); it != cache.end()) return it->second;
    }
    std::shared_ptr<const Product> made;
    try {
        const OneThread guard;
        made = std::make_shared<OneDnnProduct>(shape);
    } catch (const dnnl::error& error) {
        fail(ErrorKind::Error, "oneDNN made no kernel for [{}, {}] x [{}, {}]: {}", shape.m, shape.k, shape.k, shape.n, error.what());
    }
    static const bool registered = (shut_down_at_exit(), true);  // after oneDNN's own statics came to be, so that it runs before they go
    (void)registered;
    std::lock_guard lock(mutex);
    if (cache.size() >= kCachedKernels) cache.clear();
    return cache.emplace(shape, std::move(made)).first->second;
}

}  // namespace clikart::cpu
