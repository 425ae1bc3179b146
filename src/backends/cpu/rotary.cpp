// Rotary embedding: pairs of elements turned by angles.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"

#ifndef CLIKART_CPU_ROTARY_ONCE
#define CLIKART_CPU_ROTARY_ONCE
namespace clikart::cpu {

/// Turns the pairs of one row by `angles` angles.
template <class T>
using RotateRow = void (*)(const T* x, const T* cos, const T* sin, T* out, int64_t angles);

struct RotateTable {
    RotateRow<float> halves_f32, pairs_f32;
    RotateRow<double> halves_f64, pairs_f64;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class V>
HWY_INLINE V turned(V a, V b, V cos, V sin) {
    return hn::MulSub(a, cos, hn::Mul(b, sin));
}
template <class V>
HWY_INLINE V turned_across(V a, V b, V cos, V sin) {
    return hn::MulAdd(b, cos, hn::Mul(a, sin));
}

/// From `i` on, as many whole vectors of D as there are; returns where it ended.
template <class D, class T>
HWY_INLINE int64_t halves_from(D d, int64_t i, const T* x, const T* cos, const T* sin, T* out, int64_t angles) {
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    for (; i + step <= angles; i += step) {
        const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + angles + i), c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
        hn::StoreU(turned(a, b, c, s), d, out + i);
        hn::StoreU(turned_across(a, b, c, s), d, out + angles + i);
    }
    return i;
}
template <class D, class T>
HWY_INLINE int64_t pairs_from(D d, int64_t i, const T* x, const T* cos, const T* sin, T* out, int64_t angles) {
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    for (; i + step <= angles; i += step) {
        hn::Vec<D> a, b;
        hn::LoadInterleaved2(d, x + 2 * i, a, b);
        const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
        hn::StoreInterleaved2(turned(a, b, c, s), turned_across(a, b, c, s), d, out + 2 * i);
    }
    return i;
}

template <class T>
void rotate_halves(const T* x, const T* cos, const T* sin, T* out, int64_t angles) {
    const int64_t i = halves_from(hn::ScalableTag<T>(), 0, x, cos, sin, out, angles);
    halves_from(hn::CappedTag<T, 1>(), i, x, cos, sin, out, angles);
}
template <class T>
void rotate_pairs(const T* x, const T* cos, const T* sin, T* out, int64_t angles) {
    const int64_t i = pairs_from(hn::ScalableTag<T>(), 0, x, cos, sin, out, angles);
    pairs_from(hn::CappedTag<T, 1>(), i, x, cos, sin, out, angles);
}

RotateTable find_rotate() {
    return {&rotate_halves<float>, &rotate_pairs<float>, &rotate_halves<double>, &rotate_pairs<double>};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_rotate);

/// cos or sin under the shape of x but for the last size, which is its own.
class Angles {
public:
    Angles(const View& x, const View& angles) : view_(angles) {
        for (int d = 0; d < x.rank; ++d) {
            const int own = d - (x.rank - angles.rank);
            const bool last = d == x.rank - 1, still = own < 0 || (angles.shape[own] == 1 && !last);
            shape_.push_back(last ? angles.shape[own] : x.shape[d]);
            strides_.push_back(still ? 0 : angles.strides[own]);
        }
    }
    View view() const noexcept { return {view_.data, shape_.data(), strides_.data(), shape_.rank(), view_.dtype}; }

private:
    const View& view_;
    Dims shape_, strides_;
};

template <class T>
void rotate(const KernelCall& call, RotateRow<T> run) {
    const View& x = call.inputs[0];
    const Angles cos_view(x, call.inputs[1]), sin_view(x, call.inputs[2]);
    const LaneReader<T> in(x), cos(cos_view.view()), sin(sin_view.view());
    const LaneWriter<T> out(call.outputs[0]);
    const int64_t width = x.shape[x.rank - 1], angles = call.inputs[1].shape[call.inputs[1].rank - 1];
    const int64_t rows = in.count() / width, per_piece = std::max<int64_t>(1, kPiece / width);
    parallel_for(call, (rows + per_piece - 1) / per_piece, [&](int64_t piece) {
        const Scratch room(static_cast<size_t>(2 * width + 2 * angles) * sizeof(T));
        T *const x_room = room.template as<T>(), *const out_room = x_room + width, *const cos_room = out_room + width, *const sin_room = cos_room + angles;
        for (int64_t r = piece * per_piece; r < std::min(rows, (piece + 1) * per_piece); ++r) {
            const T* const from = in.read(r * width, width, x_room);
            T* const to = out.place(r * width, out_room);
            if (angles > 0) run(from, cos.read(r * angles, angles, cos_room), sin.read(r * angles, angles, sin_room), to, angles);
            std::copy(from + 2 * angles, from + width, to + 2 * angles);
            out.finish(r * width, width, out_room);
        }
    });
}

void rotary(const KernelCall& call) {
    const RotateTable table = HWY_DYNAMIC_DISPATCH(find_rotate)();
    const bool pairs = call.attributes->integer(attribute::rotary_embedding_interleaved) != 0;
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        rotate<double>(call, pairs ? table.pairs_f64 : table.halves_f64);
    } else {
        rotate<float>(call, pairs ? table.pairs_f32 : table.halves_f32);
    }
}

}  // namespace

KernelFn kernel_rotary_embedding(DType t) {
    return computes(t) ? &kernel<rotary> : nullptr;
}

}  // namespace clikart::cpu
#endif
