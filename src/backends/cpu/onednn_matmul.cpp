#include "backends/cpu/onednn_matmul.h"

#include <mutex>
#include <string_view>
#include <unordered_map>

#include "backends/cpu/kernel.h"
#include "backends/cpu/onednn.h"
#include "exec/fork.h"

namespace clikart::cpu {
namespace {

using dnnl::memory;

using onednn::engine, onednn::OneThread, onednn::stream;

memory::data_type type_of(DType dtype) {
    return dtype == DType::BFloat16 ? memory::data_type::bf16 : memory::data_type::f32;
}

class OneDnnKernel final : public OneDnnProduct {
public:
    explicit OneDnnKernel(const OneDnnShape& s) {
        const auto operands = type_of(s.operands);
        const memory::desc a({s.m, s.k}, operands, {s.a_row, s.a_column}), c({s.m, s.n}, type_of(s.result), {s.c_row, 1});
        plain_b_ = memory::desc({s.k, s.n}, operands, {s.b_row, s.b_column});
        dnnl::primitive_attr attr;
        attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        memory::desc b = plain_b_;
        if (s.packed_for == s.m) {
            b = memory::desc({s.k, s.n}, operands, memory::format_tag::any);
        } else if (s.packed_for != 0) {  // left to itself, oneDNN may want another layout for another number of rows
            OneDnnShape lead = s;
            lead.m = s.packed_for;
            b = static_cast<const OneDnnKernel&>(*find(lead)).description_.weights_desc();
        }
        description_ = dnnl::matmul::primitive_desc(engine(), a, b, c, attr);
        matmul_ = dnnl::matmul(description_);
        scratch_bytes_ = std::max<size_t>(1, description_.scratchpad_desc().get_size());
        if (s.packed_for != 0) reorder_ = dnnl::reorder({engine(), plain_b_, engine(), description_.weights_desc()});
    }
    std::string_view name() const override { return description_.impl_info_str(); }
    size_t packed_bytes() const override { return description_.weights_desc().get_size(); }
    void pack(const void* b, void* packed) const override {
        const OneThread guard;
        memory from(plain_b_, engine(), const_cast<void*>(b)), to(description_.weights_desc(), engine(), packed);
        reorder_.execute(stream(), from, to);
    }
    void run(const void* a, const void* b, void* c) const override {
        const OneThread guard;
        Arguments& arguments = arguments_of_thread();
        const Scratch scratch(scratch_bytes_);
        arguments.a.set_data_handle(const_cast<void*>(a));
        arguments.b.set_data_handle(const_cast<void*>(b));
        arguments.c.set_data_handle(c);
        arguments.scratch.set_data_handle(scratch.as<void>());
        const dnnl_exec_arg_t list[] = {{DNNL_ARG_SRC, arguments.a.get()},
                                        {DNNL_ARG_WEIGHTS, arguments.b.get()},
                                        {DNNL_ARG_DST, arguments.c.get()},
                                        {DNNL_ARG_SCRATCHPAD, arguments.scratch.get()}};
        dnnl::error::wrap_c_api(dnnl_primitive_execute(matmul_.get(), stream().get(), 4, list), "could not execute");
        first_run_();
    }

private:
    /// oneDNN's objects for the operands, made once for each thread: setting an address costs a tenth of making them.
    struct Arguments {
        memory a, b, c, scratch;
    };
    Arguments& arguments_of_thread() const {
        constexpr size_t kKept = 64;
        thread_local std::unordered_map<uint64_t, Arguments> kept;
        if (const auto it = kept.find(id_); it != kept.end()) return it->second;
        if (kept.size() >= kKept) kept.clear();
        const auto make = [](const memory::desc& description) { return memory(description, engine(), nullptr); };
        return kept[id_] = {make(description_.src_desc()), make(description_.weights_desc()), make(description_.dst_desc()),
                            make(description_.scratchpad_desc())};
    }

    mutable onednn::FirstRun first_run_;
    static inline std::atomic<uint64_t> next_id{0};
    const uint64_t id_ = next_id.fetch_add(1, std::memory_order_relaxed);  // an address could come again
    memory::desc plain_b_;
    dnnl::matmul::primitive_desc description_;
    dnnl::matmul matmul_;
    dnnl::reorder reorder_;
    size_t scratch_bytes_ = 1;
};

struct Hash {
    size_t operator()(const OneDnnShape& s) const noexcept {
        size_t h = static_cast<size_t>(s.packed_for);
        for (const int64_t v :
             {static_cast<int64_t>(s.operands), static_cast<int64_t>(s.result), s.m, s.n, s.k, s.a_row, s.a_column, s.b_row, s.b_column, s.c_row})
            h = h * 0x9E3779B97F4A7C15u + static_cast<size_t>(v);
        return h;
    }
};

constexpr size_t kCachedKernels = 512;  // a kernel is some 10 KB of code; a model has a few dozen shapes

std::shared_ptr<const OneDnnProduct> find_or_make(const OneDnnShape& shape) {
    static std::mutex& mutex = []() -> std::mutex& {  // guards the cache
        auto& made = *new std::mutex;
        hold_at_fork(made);
        return made;
    }();
    static auto& cache = *new std::unordered_map<OneDnnShape, std::shared_ptr<const OneDnnProduct>, Hash>;
    {
        std::lock_guard lock(mutex);
        if (const auto it = cache.find(shape); it != cache.end()) return it->second;
    }
    std::shared_ptr<const OneDnnProduct> made;
    try {
        const OneThread guard;
        made = std::make_shared<OneDnnKernel>(shape);
    } catch (const dnnl::error& error) {
        fail(ErrorKind::Error, "oneDNN made no kernel for [{}, {}] x [{}, {}]: {}", shape.m, shape.k, shape.k, shape.n, error.what());
    }
    std::lock_guard lock(mutex);
    if (cache.size() >= kCachedKernels) cache.clear();
    return cache.emplace(shape, std::move(made)).first->second;
}

}  // namespace

namespace {

void make_one_of_each_kind() {
    // One of each kind that our tiles lead to: packed and plain, large and small, one row, a piece of a wider result.
    constexpr int64_t kLarge = 256, kSmall = 64;
    const OneThread guard;
    const Scratch a(kLarge * kLarge * sizeof(float)), c(kLarge * kLarge * sizeof(float));
    std::memset(a.as<float>(), 0, kLarge * kLarge * sizeof(float));
    const auto shape = [](int64_t m, int64_t size, int64_t b_row, int64_t b_column, int64_t c_row, int64_t packed_for) {
        return OneDnnShape{DType::Float32, DType::Float32, m, size, size, size, 1, b_row, b_column, c_row, packed_for};
    };
    for (const OneDnnShape& each :
         {shape(kLarge, kLarge, kLarge, 1, kLarge, kLarge), shape(kLarge, kLarge, kLarge, 1, kLarge, 0), shape(kSmall, kSmall, 1, kSmall, kSmall, 0),
          shape(1, kSmall, kSmall, 1, kSmall, 0), shape(kSmall, kSmall, kLarge, 1, kLarge, kSmall), shape(kSmall, kSmall, kLarge, 1, kLarge, 0)}) {
        const OneDnnKernel product(each);
        const void* right = a.as<float>();
        std::unique_ptr<Scratch> packed;
        if (each.packed_for) {
            packed = std::make_unique<Scratch>(product.packed_bytes());
            product.pack(a.as<float>(), packed->as<void>());
            right = packed->as<void>();
        }
        product.run(a.as<float>(), right, c.as<float>());  // registers
    }
}

onednn::Waking& waking = *new onednn::Waking(&make_one_of_each_kind);

}  // namespace

void OneDnnProduct::wake() {
    waking.wake();
}

bool OneDnnProduct::is_fast(DType dtype) {
    if (dtype != DType::BFloat16) return dtype == DType::Float32;
    static const bool tiles = [] {  // without the matrix unit its bfloat16 takes twice as long as our float32
        constexpr int64_t kSize = 256;
        const DType t = DType::BFloat16;
        return find({t, t, kSize, kSize, kSize, kSize, 1, kSize, 1, kSize, 0})->name().find("amx") != std::string_view::npos;
    }();
    return tiles;
}

bool OneDnnProduct::packs_exactly(const OneDnnShape& packed) try {
    static std::mutex& mutex = []() -> std::mutex& {  // guards the answers
        auto& made = *new std::mutex;
        hold_at_fork(made);
        return made;
    }();
    static auto& answers = *new std::unordered_map<OneDnnShape, bool, Hash>;
    {
        std::lock_guard lock(mutex);
        if (const auto it = answers.find(packed); it != answers.end()) return it->second;
    }
    OneDnnShape plain = packed;
    plain.packed_for = 0;
    const auto extent = [](int64_t rows, int64_t row, int64_t columns, int64_t column) {
        return static_cast<size_t>((rows - 1) * row + (columns - 1) * column + 1);
    };
    const size_t n_a = extent(packed.m, packed.a_row, packed.k, packed.a_column), n_b = extent(packed.k, packed.b_row, packed.n, packed.b_column),
                 n_c = extent(packed.m, packed.c_row, packed.n, 1), element = static_cast<size_t>(size_of(packed.operands));
    const Scratch a(n_a * element), b(n_b * element), c(n_c * sizeof(float)), other(n_c * sizeof(float));
    uint32_t state = 1;
    const auto fill = [&](const Scratch& room, size_t n) {
        for (size_t i = 0; i < n; ++i) {  // numbers around 1 with all bits in use; the upper half alone is a bfloat16
            state = state * 1664525u + 1013904223u;
            const uint32_t bits = 0x3F000000u | (state >> 8 & 0xFFFFFFu);
            if (element == 4) {
                room.as<uint32_t>()[i] = bits;
            } else {
                room.as<uint16_t>()[i] = static_cast<uint16_t>(bits >> 16);
            }
        }
    };
    fill(a, n_a), fill(b, n_b);
    std::memset(c.as<void>(), 0, n_c * sizeof(float));
    std::memset(other.as<void>(), 0, n_c * sizeof(float));
    const auto with = find_or_make(packed), without = find_or_make(plain);
    const Scratch panel(with->packed_bytes());
    with->pack(b.as<void>(), panel.as<void>());
    with->run(a.as<void>(), panel.as<void>(), c.as<void>());
    without->run(a.as<void>(), b.as<void>(), other.as<void>());
    const bool same = std::memcmp(c.as<void>(), other.as<void>(), n_c * sizeof(float)) == 0;
    std::lock_guard lock(mutex);
    if (answers.size() >= kCachedKernels) answers.clear();
    answers.emplace(packed, same);
    return same;
} catch (const Failure&) {  // no memory to find out
    return false;
}

std::shared_ptr<const OneDnnProduct> OneDnnProduct::find(const OneDnnShape& shape) {
    // Pieces of one product, and calls in a loop, ask for the same kernel again and again.
    thread_local std::pair<OneDnnShape, std::shared_ptr<const OneDnnProduct>> last;
    if (!last.second || !(last.first == shape)) last = {shape, find_or_make(shape)};
    return last.second;
}

}  // namespace clikart::cpu
