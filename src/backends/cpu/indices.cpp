#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/indices.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/indices.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

// A plain loop, which becomes vectors for each instruction set.
template <class T>
int64_t read_places(const char* from, int64_t stride, int64_t size, int64_t* to, int64_t n) {
    const auto* in = reinterpret_cast<const T*>(from);
    uint64_t bad = 0;  // its highest bit: whether one is out of range
    const auto read = [&](int64_t i, T given) {
        auto place = static_cast<int64_t>(given);
        if constexpr (std::is_signed_v<T>) place += place < 0 ? size : 0;
        bad |= static_cast<uint64_t>(place) | static_cast<uint64_t>(size - 1 - place);
        to[i] = place;
    };
    if (stride == 1) {
        for (int64_t i = 0; i < n; ++i) read(i, in[i]);
    } else {
        for (int64_t i = 0; i < n; ++i) read(i, in[i * stride]);
    }
    if (bad >> 63 == 0) return n;
    int64_t first = 0;
    while (static_cast<uint64_t>(to[first]) < static_cast<uint64_t>(size)) ++first;
    return first;
}

ReadPlaces find_read_places(DType dtype) {
    ReadPlaces found = nullptr;
    with_type(dtype, [&]<class T>() {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) found = &read_places<T>;
    });
    return found;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_read_places);

}  // namespace

PlaceReader::PlaceReader(DType dtype, int64_t size, int dim) : read_(HWY_DYNAMIC_DISPATCH(find_read_places)(dtype)), dtype_(dtype), size_(size), dim_(dim) {}

void PlaceReader::refuse(const char* from, int64_t at) const {
    with_type(dtype_, [&]<class T>() {
        if constexpr (std::is_integral_v<T>) {
            const T place = reinterpret_cast<const T*>(from)[at];
            if (dim_ < 0) fail(ErrorKind::Index, "index {} is out of range for {} elements", place, size_);
            fail(ErrorKind::Index, "index {} is out of range for dimension {} of size {}", place, dim_, size_);
        }
    });
    std::abort();  // a dtype rule let something else through
}

Offsets::Offsets(const KernelCall& call, std::span<const View> indices, const View& x, std::span<const int> dims, const Dims& shape)
    : count_(numel(shape)), memory_(static_cast<size_t>(count_) * sizeof(int64_t)) {
    const Dims strides = contiguous_strides(shape);
    const View sums{memory_.as<int64_t>(), shape.data(), strides.data(), shape.rank(), static_cast<int32_t>(DType::Int64)};
    for (size_t i = 0; i < indices.size(); ++i) {
        const int64_t step = x.strides[dims[i]];
        const StridedLoop<2> loop(sums, {&indices[i], 1});
        const PlaceReader reader(dtype_of(indices[i]), x.shape[dims[i]], dims[i]);
        const int64_t stride = loop.inner_stride(1), element = size_of(dtype_of(indices[i]));
        loop.parallel_runs(call, [&](char* const* p, int64_t n) {
            auto* const to = reinterpret_cast<int64_t*>(p[0]);
            int64_t places[kTile];
            for (int64_t at = 0; at < n; at += kTile) {
                const int64_t m = std::min(kTile, n - at);
                reader.read(p[1] + at * stride * element, stride, places, m);
                for (int64_t k = 0; k < m; ++k) to[at + k] = (i == 0 ? 0 : to[at + k]) + places[k] * step;
            }
        });
    }
}

Offsets::Offsets(const KernelCall& call, const View& index, const View& x)
    : count_(numel(shape_of(index))), memory_(static_cast<size_t>(count_) * sizeof(int64_t)) {
    const Dims shape = shape_of(index), strides = contiguous_strides(shape);
    const Part whole(x, shape_of(x), strides_of(x));
    const bool is_plain = is_contiguous(shape_of(x), strides_of(x));
    const View places{memory_.as<int64_t>(), shape.data(), strides.data(), shape.rank(), static_cast<int32_t>(DType::Int64)};
    const StridedLoop<2> loop(places, {&index, 1});
    const PlaceReader reader(dtype_of(index), whole.count(), -1);
    loop.parallel_runs(call, [&](char* const* p, int64_t n) {
        auto* const to = reinterpret_cast<int64_t*>(p[0]);
        reader.read(p[1], loop.inner_stride(1), to, n);
        if (is_plain) return;
        for (int64_t i = 0; i < n; ++i) to[i] = whole.offset(to[i]);
    });
}

}  // namespace clikart::cpu
#endif
