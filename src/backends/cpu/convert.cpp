#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/convert.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/convert.h"
#include "backends/cpu/tile.h"
#include "core/convert.h"

#ifndef CLIKART_CPU_CONVERT_ONCE
#define CLIKART_CPU_CONVERT_ONCE
namespace clikart::cpu {

/// Contiguous conversions that are worth instructions of their own.
struct FastConversions {
    void (*float_to_half)(const float*, uint16_t*, int64_t);
    void (*half_to_float)(const uint16_t*, float*, int64_t);
    void (*float_to_bfloat16)(const float*, uint16_t*, int64_t);
    void (*bfloat16_to_float)(const uint16_t*, float*, int64_t);
    void (*float_to_int)(const float*, int32_t*, int64_t);
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// bfloat16 is the upper half of a float32, rounded to even.  Few instructions, so that the processor sees far enough ahead to
/// keep memory busy.
void float_to_bfloat16(const float* from, uint16_t* to, int64_t n) {
    const hn::ScalableTag<float> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<uint16_t, decltype(d)> dh;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto one = hn::Set(du, 1u), half = hn::Set(du, 0x7fffu), sign = hn::Set(du, 0x80000000u), nan = hn::Set(du, 0x7fc00000u);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        const auto x = hn::LoadU(d, from + i);
        const auto u = hn::BitCast(du, x);
        const auto rounded = hn::Add(hn::Add(u, half), hn::And(hn::ShiftRight<16>(u), one));
        const auto kept = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(x)), hn::Or(hn::And(u, sign), nan), rounded);
        hn::StoreU(hn::TruncateTo(dh, hn::ShiftRight<16>(kept)), dh, to + i);
    }
    for (; i < n; ++i) to[i] = BFloat16(from[i]).bits;
}

void bfloat16_to_float(const uint16_t* from, float* to, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) to[i] = std::bit_cast<float>(uint32_t{from[i]} << 16);
}

#if HWY_TARGET != HWY_SCALAR
constexpr size_t kHalves = 8;  // what one F16C instruction converts

void float_to_half(const float* from, uint16_t* to, int64_t n) {
    const hn::CappedTag<float, kHalves> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    auto* out = reinterpret_cast<hwy::float16_t*>(to);
    int64_t i = 0;
    for (; i + static_cast<int64_t>(kHalves) <= n; i += kHalves) hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, out + i);
    for (; i < n; ++i) to[i] = Half(from[i]).bits;
}

void half_to_float(const uint16_t* from, float* to, int64_t n) {
    const hn::CappedTag<float, kHalves> d;
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    const auto* in = reinterpret_cast<const hwy::float16_t*>(from);
    int64_t i = 0;
    for (; i + static_cast<int64_t>(kHalves) <= n; i += kHalves) hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, in + i)), d, to + i);
    for (; i < n; ++i) to[i] = static_cast<float>(std::bit_cast<Half>(from[i]));
}
#else
void float_to_half(const float* from, uint16_t* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = Half(from[i]).bits;
}
void half_to_float(const uint16_t* from, float* to, int64_t n) {
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(std::bit_cast<Half>(from[i]));
}
#endif

/// The smallest number for NaN and for what does not fit, as core/convert.h has it.
void float_to_int(const float* from, int32_t* to, int64_t n) {
    const hn::ScalableTag<float> d;
    const hn::RebindToSigned<decltype(d)> di;
    const auto low = hn::Set(d, -2147483648.0f), high = hn::Set(d, 2147483648.0f);
    const auto least = hn::Set(di, std::numeric_limits<int32_t>::min());
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) {
        const auto x = hn::LoadU(d, from + i);
        const auto fits = hn::And(hn::Ge(x, low), hn::Lt(x, high));
        hn::StoreU(hn::IfThenElse(hn::RebindMask(di, fits), hn::ConvertTo(di, x), least), di, to + i);
    }
    for (; i < n; ++i) to[i] = convert<int32_t>(from[i]);
}

FastConversions find_fast() {
    return {&float_to_half, &half_to_float, &float_to_bfloat16, &bfloat16_to_float, &float_to_int};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_fast);

template <class From, class To>
void convert_run(const void* from_bytes, int64_t from_stride, void* to_bytes, int64_t to_stride, int64_t n) {
    const auto* from = static_cast<const From*>(from_bytes);
    auto* to = static_cast<To*>(to_bytes);
    if (from_stride == 1 && to_stride == 1) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
    } else {
        for (int64_t i = 0; i < n; ++i) to[i * to_stride] = convert<To>(from[i * from_stride]);
    }
}

/// Between float32 and a half-sized float: gathered into contiguous tiles first, so that there is one way to convert.
template <class From, class To, void (*FastConversions::*Member)(const From*, To*, int64_t)>
void fast_run(const void* from_bytes, int64_t from_stride, void* to_bytes, int64_t to_stride, int64_t n) {
    const auto* from = static_cast<const From*>(from_bytes);
    auto* to = static_cast<To*>(to_bytes);
    const auto run = HWY_DYNAMIC_DISPATCH(find_fast)().*Member;
    if (from_stride == 1 && to_stride == 1) return run(from, to, n);
    alignas(64) From in[kTile];
    alignas(64) To out[kTile];
    for (int64_t i = 0; i < n; i += kTile) {
        const int64_t m = std::min(kTile, n - i);
        gather(reinterpret_cast<const char*>(from + i * from_stride), from_stride, reinterpret_cast<char*>(in), m, sizeof(From));
        run(in, out, m);
        scatter(reinterpret_cast<const char*>(out), reinterpret_cast<char*>(to + i * to_stride), to_stride, m, sizeof(To));
    }
}

/// To integers that are narrower still: what is left of the number when the upper bits are dropped.
template <class To>
void narrow_run(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
    alignas(64) int32_t numbers[kTile];
    for (int64_t i = 0; i < n; i += kTile) {
        const int64_t m = std::min(kTile, n - i);
        fast_run<float, int32_t, &FastConversions::float_to_int>(static_cast<const float*>(from) + i * from_stride, from_stride, numbers, 1, m);
        convert_run<int32_t, To>(numbers, 1, static_cast<To*>(to) + i * to_stride, to_stride, m);
    }
}

template <int Bytes>
void copy_run(const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t n) {
    if (from_stride == 1) return scatter(static_cast<const char*>(from), static_cast<char*>(to), to_stride, n, Bytes);
    if (to_stride == 1) return gather(static_cast<const char*>(from), from_stride, static_cast<char*>(to), n, Bytes);
    for (int64_t i = 0; i < n; ++i) {
        std::memcpy(static_cast<char*>(to) + i * to_stride * Bytes, static_cast<const char*>(from) + i * from_stride * Bytes, Bytes);
    }
}

}  // namespace

ConvertFn find_convert(DType from, DType to) {
    if (from == to) {
        switch (size_of(from)) {
            case 1: return &copy_run<1>;
            case 2: return &copy_run<2>;
            case 4: return &copy_run<4>;
            default: return &copy_run<8>;
        }
    }
    if (from == DType::Float32 && to == DType::Float16) return &fast_run<float, uint16_t, &FastConversions::float_to_half>;
    if (from == DType::Float16 && to == DType::Float32) return &fast_run<uint16_t, float, &FastConversions::half_to_float>;
    if (from == DType::Float32 && to == DType::BFloat16) return &fast_run<float, uint16_t, &FastConversions::float_to_bfloat16>;
    if (from == DType::BFloat16 && to == DType::Float32) return &fast_run<uint16_t, float, &FastConversions::bfloat16_to_float>;
    if (from == DType::Float32) {
        switch (to) {
            case DType::Int32: return &fast_run<float, int32_t, &FastConversions::float_to_int>;
            case DType::Int16: return &narrow_run<int16_t>;
            case DType::Int8: return &narrow_run<int8_t>;
            case DType::UInt16: return &narrow_run<uint16_t>;
            case DType::UInt8: return &narrow_run<uint8_t>;
            default: break;
        }
    }
    ConvertFn fn = nullptr;
    with_stored_type(from, [&]<class From>() { with_stored_type(to, [&]<class To>() { fn = &convert_run<From, To>; }); });
    return fn;
}

}  // namespace clikart::cpu
#endif
