// Elementwise operators of one operand that are exact: signs, rounding, bits, questions.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/unary_number.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

struct NegFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Neg(x);
    }
    template <class T>
    T operator()(T x) const {
        return static_cast<T>(0 - x);
    }
};
struct AbsFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Abs(x);
    }
    template <class T>
    T operator()(T x) const {
        if constexpr (std::is_unsigned_v<T>) return x;
        return static_cast<T>(x < 0 ? 0 - x : x);
    }
};
struct SignFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        const V zero = hn::Zero(d), one = hn::Set(d, 1);
        return hn::IfThenElse(hn::Gt(x, zero), one, hn::IfThenElse(hn::Lt(x, zero), hn::Neg(one), zero));
    }
    template <class T>
    T operator()(T x) const {
        return static_cast<T>((x > 0) - (x < 0));
    }
};
struct SquareFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Mul(x, x);
    }
    template <class T>
    T operator()(T x) const {
        return static_cast<T>(x * x);
    }
};
struct ReluFn {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D d, V x) const {
        return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);  // NaN is not below zero and stays
    }
    template <class T>
    T operator()(T x) const {
        return x < 0 ? T(0) : x;
    }
};

/// Rounding: what integers are already.
template <class Rounds>
struct Rounding {
    template <FloatTag D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return Rounds()(x);
    }
    template <class T>
    T operator()(T x) const {
        return x;
    }
};
struct Down {
    template <class V>
    HWY_INLINE V operator()(V x) const {
        return hn::Floor(x);
    }
};
struct Up {
    template <class V>
    HWY_INLINE V operator()(V x) const {
        return hn::Ceil(x);
    }
};
struct ToEven {
    template <class V>
    HWY_INLINE V operator()(V x) const {
        return hn::Round(x);
    }
};
struct ToZero {
    template <class V>
    HWY_INLINE V operator()(V x) const {
        return hn::Trunc(x);
    }
};
struct FracFn {
    template <class D, class V>
    HWY_INLINE V operator()(D, V x) const {
        return hn::Sub(x, hn::Trunc(x));
    }
};
/// What is not a number, or not finite, by what the attributes say.
struct NanToNumFn {
    double nan, above, below;
    bool has_above, has_below;
    double stored_most;  // of a dtype narrower than its lanes; 0: of the lanes
    explicit NanToNumFn(const Attributes& a, double stored_most = 0)
        : nan(a.real(attribute::nan_to_num_nan)),
          above(a.present(attribute::nan_to_num_posinf) ? a.real(attribute::nan_to_num_posinf) : 0),
          below(a.present(attribute::nan_to_num_neginf) ? a.real(attribute::nan_to_num_neginf) : 0),
          has_above(a.present(attribute::nan_to_num_posinf)),
          has_below(a.present(attribute::nan_to_num_neginf)),
          stored_most(stored_most) {}
    template <class T>
    T operator()(T x) const {
        if constexpr (std::is_integral_v<T>) {
            return x;
        } else {
            const T most = stored_most != 0 ? static_cast<T>(stored_most) : std::numeric_limits<T>::max();
            constexpr T infinite = std::numeric_limits<T>::infinity();
            const T up = has_above ? static_cast<T>(above) : most, down = has_below ? static_cast<T>(below) : -most;
            return x != x ? static_cast<T>(nan) : x == infinite ? up : x == -infinite ? down : x;
        }
    }
};
struct NanToNumHalfFn : NanToNumFn {
    explicit NanToNumHalfFn(const Attributes& a) : NanToNumFn(a, 65504.0) {}
};
struct NanToNumBFloat16Fn : NanToNumFn {
    explicit NanToNumBFloat16Fn(const Attributes& a) : NanToNumFn(a, 0x1.FEp127) {}
};

struct BitwiseNotFn {
    template <class T>
    T operator()(T x) const {
        return static_cast<T>(~x);
    }
};
struct NotFn {
    template <class T>
    bool operator()(T x) const {
        return x == T(0);
    }
};
struct IsNanFn {
    template <class T>
    bool operator()(T x) const {
        return x != x;
    }
};
template <class T>
inline bool is_infinite(T x) {
    if constexpr (std::is_floating_point_v<T>) return std::abs(x) == std::numeric_limits<T>::infinity();
    return false;
}
struct IsInfFn {
    template <class T>
    bool operator()(T x) const {
        return is_infinite(x);
    }
};
struct IsFiniteFn {
    template <class T>
    bool operator()(T x) const {
        return x == x && !is_infinite(x);
    }
};
struct IsPosInfFn {
    template <class T>
    bool operator()(T x) const {
        return is_infinite(x) && x > T(0);
    }
};
struct IsNegInfFn {
    template <class T>
    bool operator()(T x) const {
        return is_infinite(x) && !(x > T(0));
    }
};
struct SignbitFn {
    template <class T>
    bool operator()(T x) const {
        if constexpr (std::is_integral_v<T>) {
            return x < T(0);
        } else {
            return std::signbit(x);
        }
    }
};

ElementLoop find_unary_number(OpCode op, DType t) {
    switch (op) {
        case OpCode::Neg: return wrapping<NegFn, 1>(t);
        case OpCode::Abs: return numbers<AbsFn, 1>(t);
        case OpCode::Sign: return t == DType::Bool ? bits<Rounding<Down>, 1>(DType::UInt8) : numbers<SignFn, 1>(t);
        case OpCode::Square: return wrapping<SquareFn, 1>(t);
        case OpCode::Relu: return numbers<ReluFn, 1>(t);
        case OpCode::Floor: return wrapping<Rounding<Down>, 1>(t);
        case OpCode::Ceil: return wrapping<Rounding<Up>, 1>(t);
        case OpCode::Round: return wrapping<Rounding<ToEven>, 1>(t);
        case OpCode::Trunc: return wrapping<Rounding<ToZero>, 1>(t);
        case OpCode::Frac: return floats<FracFn, 1>(t);
        case OpCode::NanToNum:
            return t == DType::Float16 ? numbers<NanToNumHalfFn, 1>(t) : t == DType::BFloat16 ? numbers<NanToNumBFloat16Fn, 1>(t) : numbers<NanToNumFn, 1>(t);
        case OpCode::BitwiseNot: return t == DType::Bool ? predicates<NotFn, 1>(t) : bits<BitwiseNotFn, 1>(t);
        case OpCode::LogicalNot: return predicates<NotFn, 1>(t);
        case OpCode::Isnan: return predicates<IsNanFn, 1>(t);
        case OpCode::Isinf: return predicates<IsInfFn, 1>(t);
        case OpCode::Isfinite: return predicates<IsFiniteFn, 1>(t);
        case OpCode::Isposinf: return predicates<IsPosInfFn, 1>(t);
        case OpCode::Isneginf: return predicates<IsNegInfFn, 1>(t);
        case OpCode::Signbit: return predicates<SignbitFn, 1>(t);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_unary_number);
CLIKART_ELEMENTWISE_KERNELS(find_unary_number)
CLIKART_ELEMENTWISE(neg, Neg)
CLIKART_ELEMENTWISE(abs, Abs)
CLIKART_ELEMENTWISE(sign, Sign)
CLIKART_ELEMENTWISE(square, Square)
CLIKART_ELEMENTWISE(relu, Relu)
CLIKART_ELEMENTWISE(floor, Floor)
CLIKART_ELEMENTWISE(ceil, Ceil)
CLIKART_ELEMENTWISE(round, Round)
CLIKART_ELEMENTWISE(trunc, Trunc)
CLIKART_ELEMENTWISE(frac, Frac)
CLIKART_ELEMENTWISE(nan_to_num, NanToNum)
CLIKART_ELEMENTWISE(bitwise_not, BitwiseNot)
CLIKART_ELEMENTWISE(logical_not, LogicalNot)
CLIKART_ELEMENTWISE(isnan, Isnan)
CLIKART_ELEMENTWISE(isinf, Isinf)
CLIKART_ELEMENTWISE(isfinite, Isfinite)
CLIKART_ELEMENTWISE(isposinf, Isposinf)
CLIKART_ELEMENTWISE(isneginf, Isneginf)
CLIKART_ELEMENTWISE(signbit, Signbit)

}  // namespace clikart::cpu
#endif
