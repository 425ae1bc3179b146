// Elementwise arithmetic of two and three operands.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/arithmetic.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/sleef-inl.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct AddFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::Add(a, b);
    }
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a + b);
    }
};
struct SubFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::Sub(a, b);
    }
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a - b);
    }
};
struct MulFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::Mul(a, b);
    }
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a * b);
    }
};
struct DivFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::Div(a, b);
    }
};
struct MaximumFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        const V larger = hn::IfThenElse(hn::Gt(a, b), a, b);  // b where either is NaN
        return hn::IfThenElse(hn::IsNaN(a), a, larger);
    }
    template <class T>
    T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};
struct MinimumFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        const V smaller = hn::IfThenElse(hn::Lt(a, b), a, b);  // b where either is NaN
        return hn::IfThenElse(hn::IsNaN(a), a, smaller);
    }
    template <class T>
    T operator()(T a, T b) const {
        return a < b ? a : b;
    }
};
struct FmaxFn {  // the number where one is NaN
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::IfThenElse(hn::IsNaN(b), a, hn::IfThenElse(hn::Gt(a, b), a, b));
    }
    template <class T>
    T operator()(T a, T b) const {
        return a > b ? a : b;
    }
};
struct FminFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::IfThenElse(hn::IsNaN(b), a, hn::IfThenElse(hn::Lt(a, b), a, b));
    }
    template <class T>
    T operator()(T a, T b) const {
        return a < b ? a : b;
    }
};

/// Throws out of the kernel; the operator's name is put before it.
[[noreturn]] HWY_NOINLINE void divided_by_zero() {
    fail(ErrorKind::Runtime, "integer division by zero");
}
template <class T>
inline bool overflows(T a, T b) noexcept {
    if constexpr (std::is_signed_v<T>) return b == -1 && a == std::numeric_limits<T>::min();
    return false;
}

// Towards minus infinity and towards zero; the smallest integer by -1 wraps to itself, with nothing left over.
struct FloorDivideFn {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) {
            if (b == 0) return a / b;
            const T rest = std::fmod(a, b);
            T quotient = (a - rest) / b;
            if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
            if (quotient == 0) return std::copysign(T(0), a / b);
            const T floored = std::floor(quotient);
            return quotient - floored > T(0.5) ? floored + 1 : floored;
        } else {
            if (b == 0) divided_by_zero();
            if (overflows(a, b)) return a;
            const T quotient = static_cast<T>(a / b);
            return a % b != 0 && (a < 0) != (b < 0) ? static_cast<T>(quotient - 1) : quotient;
        }
    }
};
struct TruncDivideFn {
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) {
            return std::trunc(a / b);
        } else {
            if (b == 0) divided_by_zero();
            return overflows(a, b) ? a : static_cast<T>(a / b);
        }
    }
};
struct RemainderFn {  // has the divisor's sign
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) {
            const T rest = std::fmod(a, b);
            return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
        } else {
            if (b == 0) divided_by_zero();
            if (overflows(a, b)) return 0;
            const T rest = static_cast<T>(a % b);
            return rest != 0 && (b < 0) != (rest < 0) ? static_cast<T>(rest + b) : rest;
        }
    }
};
struct FmodFn {  // has the dividend's sign
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_floating_point_v<T>) {
            return std::fmod(a, b);
        } else {
            if (b == 0) divided_by_zero();
            return overflows(a, b) ? T(0) : static_cast<T>(a % b);
        }
    }
};

struct PowFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D d, V a, V b) const {
        return pow(d, a, b);
    }
    template <class T>
    T operator()(T a, T b) const {
        if constexpr (std::is_signed_v<T>) {
            if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 ? T(-1) : T(1)) : T(0);
        }
        T result = 1;
        for (; b; b = static_cast<T>(b >> 1), a = static_cast<T>(a * a)) {
            if (b & 1) result = static_cast<T>(result * a);
        }
        return result;
    }
};
struct SquareFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Mul(x, x);
    }
};
struct CubeFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Mul(hn::Mul(x, x), x);
    }
};
/// The same, with the exponents that programs write as numbers done as what they are.
template <class T>
void pow_loop(const Operands& operands, void* out, int64_t n) {
    if (operands.step[1] == 0) {
        const T exponent = *static_cast<const T*>(operands.data[1]);
        if (exponent == 2) return vector_loop<SquareFn, T, 1>(operands, out, n);
        if (exponent == 3) return vector_loop<CubeFn, T, 1>(operands, out, n);
    }
    vector_loop<PowFn, T, 2>(operands, out, n);
}
ElementLoop power(DType t) {
    ElementLoop loop = numbers<PowFn, 2>(t);
    if (lane_of(t) == DType::Float32) loop.run = &pow_loop<float>;
    if (t == DType::Float64) loop.run = &pow_loop<double>;
    return loop;
}

struct Atan2Fn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V a, V b) const {
        return atan2(d, a, b);
    }
};
struct HypotFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V a, V b) const {
        return hypot(d, a, b);
    }
};
struct CopysignFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V a, V b) const {
        return hn::CopySign(a, b);
    }
};
/// log(e^a + e^b), through the larger one.
struct LogaddexpFn {
    template <class T>
    T operator()(T a, T b) const {
        if (a == b && std::isinf(a)) return a;
        const T larger = a > b ? a : b;
        return a != a || b != b ? a + b : larger + std::log1p(std::exp(-std::abs(a - b)));
    }
};

struct AndFn {
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a & b);
    }
};
struct OrFn {
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a | b);
    }
};
struct XorFn {
    template <class T>
    T operator()(T a, T b) const {
        return static_cast<T>(a ^ b);
    }
};
// Shifts by the width or more, or by less than nothing, push all bits out.
struct LeftShiftFn {
    template <class T>
    T operator()(T a, T b) const {
        const bool inside = b >= 0 && static_cast<uint64_t>(b) < 8 * sizeof(T);
        return inside ? static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) << b) : T(0);
    }
};
struct RightShiftFn {
    template <class T>
    T operator()(T a, T b) const {
        const bool inside = b >= 0 && static_cast<uint64_t>(b) < 8 * sizeof(T);
        return static_cast<T>(a >> (inside ? static_cast<int>(b) : static_cast<int>(8 * sizeof(T) - 1)) >> (!inside && std::is_unsigned_v<T> ? 1 : 0));
    }
};

/// a + weight (b - a), from the nearer end, as torch computes it.
struct LerpFn {
    template <class D, class V>
    HWY_INLINE V operator()(D d, V a, V b, V weight) const {
        using T = hn::TFromD<D>;
        const V difference = hn::Sub(b, a), one = hn::Set(d, 1);
        const auto near = hn::Lt(hn::Abs(weight), hn::Set(d, T(0.5)));
        return hn::IfThenElse(near, hn::MulAdd(weight, difference, a), hn::NegMulAdd(difference, hn::Sub(one, weight), b));
    }
};

// Of bools, as bytes: memory that was borrowed may hold others than 0 and 1.
struct BothFn {
    uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) & (b != 0); }
};
struct EitherFn {
    uint8_t operator()(uint8_t a, uint8_t b) const { return (a | b) != 0; }
};
struct OneFn {
    uint8_t operator()(uint8_t a, uint8_t b) const { return (a != 0) != (b != 0); }
};
template <class F>
ElementLoop bools() {
    ElementLoop loop = loop_of<F, uint8_t, 2>();
    loop.in[0] = loop.in[1] = loop.out = DType::Bool;
    return loop;
}

ElementLoop find_arithmetic(OpCode op, DType t) {
    if (t == DType::Bool) {
        switch (op) {
            case OpCode::Add:
            case OpCode::Maximum:
            case OpCode::Fmax:
            case OpCode::BitwiseOr: return bools<EitherFn>();
            case OpCode::Mul:
            case OpCode::Minimum:
            case OpCode::Fmin:
            case OpCode::BitwiseAnd: return bools<BothFn>();
            case OpCode::BitwiseXor: return bools<OneFn>();
            default: return {};
        }
    }
    switch (op) {
        case OpCode::Add: return wrapping<AddFn, 2>(t);
        case OpCode::Sub: return wrapping<SubFn, 2>(t);
        case OpCode::Mul: return wrapping<MulFn, 2>(t);
        case OpCode::Div: return floats<DivFn, 2>(t);
        case OpCode::Maximum: return numbers<MaximumFn, 2>(t);
        case OpCode::Minimum: return numbers<MinimumFn, 2>(t);
        case OpCode::Fmax: return numbers<FmaxFn, 2>(t);
        case OpCode::Fmin: return numbers<FminFn, 2>(t);
        case OpCode::FloorDivide: return numbers<FloorDivideFn, 2>(t);
        case OpCode::TruncDivide: return numbers<TruncDivideFn, 2>(t);
        case OpCode::Remainder: return numbers<RemainderFn, 2>(t);
        case OpCode::Fmod: return numbers<FmodFn, 2>(t);
        case OpCode::Pow: return power(t);
        case OpCode::Atan2: return floats<Atan2Fn, 2>(t);
        case OpCode::Hypot: return floats<HypotFn, 2>(t);
        case OpCode::Copysign: return floats<CopysignFn, 2>(t);
        case OpCode::Logaddexp: return floats<LogaddexpFn, 2>(t);
        case OpCode::BitwiseAnd: return bits<AndFn, 2>(t);
        case OpCode::BitwiseOr: return bits<OrFn, 2>(t);
        case OpCode::BitwiseXor: return bits<XorFn, 2>(t);
        case OpCode::LeftShift: return integers<LeftShiftFn, 2>(t);
        case OpCode::RightShift: return integers<RightShiftFn, 2>(t);
        case OpCode::Lerp: return floats<LerpFn, 3>(t);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_arithmetic);
CLIKART_ELEMENTWISE_KERNELS(find_arithmetic)
CLIKART_ELEMENTWISE(add, Add)
CLIKART_ELEMENTWISE(sub, Sub)
CLIKART_ELEMENTWISE(mul, Mul)
CLIKART_ELEMENTWISE(div, Div)
CLIKART_ELEMENTWISE(maximum, Maximum)
CLIKART_ELEMENTWISE(minimum, Minimum)
CLIKART_ELEMENTWISE(fmax, Fmax)
CLIKART_ELEMENTWISE(fmin, Fmin)
CLIKART_ELEMENTWISE(floor_divide, FloorDivide)
CLIKART_ELEMENTWISE(trunc_divide, TruncDivide)
CLIKART_ELEMENTWISE(remainder, Remainder)
CLIKART_ELEMENTWISE(fmod, Fmod)
CLIKART_ELEMENTWISE(pow, Pow)
CLIKART_ELEMENTWISE(atan2, Atan2)
CLIKART_ELEMENTWISE(hypot, Hypot)
CLIKART_ELEMENTWISE(copysign, Copysign)
CLIKART_ELEMENTWISE(logaddexp, Logaddexp)
CLIKART_ELEMENTWISE(bitwise_and, BitwiseAnd)
CLIKART_ELEMENTWISE(bitwise_or, BitwiseOr)
CLIKART_ELEMENTWISE(bitwise_xor, BitwiseXor)
CLIKART_ELEMENTWISE(left_shift, LeftShift)
CLIKART_ELEMENTWISE(right_shift, RightShift)
CLIKART_ELEMENTWISE(lerp, Lerp)

}  // namespace clikart::cpu
#endif
