#include "backends/cpu/onednn_convolution.h"

#include <string_view>
#include <unordered_map>

#include "backends/cpu/onednn.h"
#include "exec/fork.h"

namespace clikart::cpu {
namespace {

using dnnl::memory;
using onednn::engine, onednn::OneThread;

/// What oneDNN describes a convolution with.  Two spatial dimensions do where there is no depth: there are more kernels for them.
struct Descriptions {
    explicit Descriptions(const ConvolutionShape& s) {
        const auto f32 = memory::data_type::f32;
        const bool flat = s.in[0] == 1 && s.out[0] == 1 && s.kernel[0] == 1 && s.low[0] == 0;
        const int first = flat ? 1 : 0;
        const int64_t taps = s.taps(), from = s.in_group(), to = s.out_group();
        memory::dims x{s.batch, s.in_channels}, out{s.batch, s.out_channels}, kernel, kernel_strides;
        if (s.groups > 1) {
            kernel = {s.groups};
            kernel_strides = {(s.transposed ? from : to) * taps * (s.transposed ? to : from)};
        }
        kernel.insert(kernel.end(), {to, from});
        if (s.transposed) {
            kernel_strides.insert(kernel_strides.end(), {1, taps * to});
        } else {
            kernel_strides.insert(kernel_strides.end(), {taps * from, 1});
        }
        int64_t step = s.transposed ? to : from;
        for (int d = first; d < 3; ++d) step *= s.kernel[d];
        for (int d = first; d < 3; ++d) {
            x.push_back(s.in[d]);
            out.push_back(s.out[d]);
            kernel.push_back(s.kernel[d]);
            kernel_strides.push_back(step /= s.kernel[d]);
            strides.push_back(s.stride[d]);
            dilates.push_back(s.dilation[d] - 1);
            low.push_back(s.low[d]);
            high.push_back(s.high[d]);
        }
        const auto tag = flat ? memory::format_tag::nhwc : memory::format_tag::ndhwc;
        this->x = memory::desc(x, f32, tag);
        this->out = memory::desc(out, f32, tag);
        plain_weight = memory::desc(kernel, f32, kernel_strides);
        weight = memory::desc(kernel, f32, memory::format_tag::any);
        if (s.bias) bias = memory::desc({s.out_channels}, f32, memory::format_tag::x);
        attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    }
    memory::desc x, weight, plain_weight, bias, out;
    memory::dims strides, dilates, low, high;
    dnnl::primitive_attr attr;
};

/// `Primitive`: the convolution or the transposed one.
template <class Primitive>
class OneDnnConvolution final : public Convolution {
public:
    explicit OneDnnConvolution(const ConvolutionShape& shape) {
        const Descriptions d(shape);
        constexpr bool transposed = std::is_same_v<Primitive, dnnl::deconvolution_forward>;
        const auto algorithm = transposed ? dnnl::algorithm::deconvolution_direct : dnnl::algorithm::convolution_direct;
        description_ = typename Primitive::primitive_desc(engine(), dnnl::prop_kind::forward_inference, algorithm, d.x, d.weight, d.bias, d.out, d.strides,
                                                          d.dilates, d.low, d.high, d.attr);
        name_ = description_.impl_info_str();
        if (is_slow()) return;  // not worth making
        primitive_ = Primitive(description_);
        std::vector<onednn::Operands::Operand> operands{{DNNL_ARG_SRC, description_.src_desc()},
                                                        {DNNL_ARG_WEIGHTS, description_.weights_desc()},
                                                        {DNNL_ARG_DST, description_.dst_desc()},
                                                        {DNNL_ARG_SCRATCHPAD, description_.scratchpad_desc()}};
        if (shape.bias) operands.push_back({DNNL_ARG_BIAS, description_.bias_desc()});
        operands_ = onednn::Operands(std::move(operands));
        scratch_bytes_ = std::max<size_t>(1, description_.scratchpad_desc().get_size());
        reorder_ = dnnl::reorder({engine(), d.plain_weight, engine(), description_.weights_desc()});
        reordered_ = onednn::Operands({{DNNL_ARG_FROM, d.plain_weight}, {DNNL_ARG_TO, description_.weights_desc()}});
    }
    bool is_slow() const { return std::string_view(name_).find("ref") != std::string_view::npos; }

    bool packs_like(const Convolution& other) const override {
        return description_.weights_desc() == static_cast<const OneDnnConvolution&>(other).description_.weights_desc();
    }
    size_t packed_bytes() const override { return description_.weights_desc().get_size(); }
    void pack(const float* weight, void* packed) const override {
        const OneThread guard;
        void* const addresses[] = {const_cast<float*>(weight), packed};
        reordered_.execute(reorder_, addresses);
    }
    void run(const float* x, const void* packed, const float* bias, float* out) const override {
        const OneThread guard;
        const Scratch scratch(scratch_bytes_);
        void* const addresses[] = {const_cast<float*>(x), const_cast<void*>(packed), out, scratch.as<void>(), const_cast<float*>(bias)};
        operands_.execute(primitive_, addresses);
        first_run_();
    }
    const char* implementation() const override { return name_; }

private:
    mutable onednn::FirstRun first_run_;
    typename Primitive::primitive_desc description_;
    Primitive primitive_;
    dnnl::reorder reorder_;
    onednn::Operands operands_, reordered_;
    size_t scratch_bytes_ = 1;
    const char* name_ = "";
};

template <class Primitive>
std::shared_ptr<const Convolution> make_as(const ConvolutionShape& shape) {
    auto made = std::make_shared<OneDnnConvolution<Primitive>>(shape);
    return made->is_slow() ? nullptr : made;
}

std::shared_ptr<const Convolution> make(const ConvolutionShape& shape) {
    const OneThread guard;
    try {
        return shape.transposed ? make_as<dnnl::deconvolution_forward>(shape) : make_as<dnnl::convolution_forward>(shape);
    } catch (const dnnl::error& error) {
        if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
        return nullptr;
    }
}

struct Hash {
    size_t operator()(const ConvolutionShape& s) const noexcept {
        size_t h = 0;
        const auto add = [&](int64_t v) { h = h * 0x9E3779B97F4A7C15u + static_cast<size_t>(v); };
        for (const int64_t v : {s.batch, s.groups, s.in_channels, s.out_channels, s.transposed, s.bias}) add(v);
        for (const auto* list : {s.in, s.kernel, s.out, s.stride, s.dilation, s.low}) std::for_each_n(list, 3, add);
        return h;
    }
};

constexpr size_t kCachedKernels = 512;  // a kernel is some 10 KB of code; a model has a few dozen shapes in three pieces

// Held by a fork, like the lock of anything that kernels take.
std::mutex& cache_mutex = []() -> std::mutex& {
    auto& made = *new std::mutex;
    hold_at_fork(made);
    return made;
}();
auto& cache = *new std::unordered_map<ConvolutionShape, std::shared_ptr<const Convolution>, Hash>;

void run_one_of_each_kind() {
    // A window, a single place, channels for themselves, and a transposed one.
    constexpr int64_t kChannels = 32, kSize = 8;
    const Scratch zeros(kChannels * kChannels * kSize * kSize * sizeof(float));
    std::memset(zeros.as<float>(), 0, kChannels * kChannels * kSize * kSize * sizeof(float));
    const auto run = [&](int64_t groups, int64_t kernel, int64_t transposed) {
        ConvolutionShape s{1,  groups, kChannels,  kChannels, {1, kSize, kSize}, {1, kernel, kernel}, {1, kSize, kSize}, {1, 1, 1}, {1, 1, 1},
                           {}, {},     transposed, 0};
        for (int d = 1; d < 3; ++d) s.low[d] = s.high[d] = kernel / 2;
        const auto made = make(s);
        if (!made) return;
        const Scratch packed(made->packed_bytes()), out(kChannels * kSize * kSize * sizeof(float));
        made->pack(zeros.as<float>(), packed.as<void>());
        made->run(zeros.as<float>(), packed.as<void>(), nullptr, out.as<float>());
    };
    run(1, 3, 0), run(1, 1, 0), run(kChannels, 3, 0), run(1, 3, 1);
}

onednn::Waking& waking = *new onednn::Waking(&run_one_of_each_kind);

}  // namespace

void Convolution::wake() {
    waking.wake();
}

std::shared_ptr<const Convolution> Convolution::find(const ConvolutionShape& shape) {
    {
        std::lock_guard lock(cache_mutex);
        if (const auto it = cache.find(shape); it != cache.end()) return it->second;
    }
    std::shared_ptr<const Convolution> made = make(shape);
    std::lock_guard lock(cache_mutex);
    if (cache.size() >= kCachedKernels) cache.clear();
    return cache.emplace(shape, std::move(made)).first->second;
}

}  // namespace clikart::cpu
