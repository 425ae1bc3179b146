// Comparisons, logic and choice.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/compare.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/elementwise-inl.h"
#include "backends/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

#undef CLIKART_COMPARISON
#define CLIKART_COMPARISON(Name, expression) \
    struct Name {                            \
        template <class T>                   \
        bool operator()(T a, T b) const {    \
            return expression;               \
        }                                    \
    };
CLIKART_COMPARISON(EqFn, a == b)
CLIKART_COMPARISON(NeFn, a != b)
CLIKART_COMPARISON(LtFn, a < b)
CLIKART_COMPARISON(LeFn, a <= b)
CLIKART_COMPARISON(GtFn, a > b)
CLIKART_COMPARISON(GeFn, a >= b)
#undef CLIKART_COMPARISON

// Of bools, which what is compared was made; as bytes, since memory that was borrowed may hold others than 0 and 1.
struct AndFn {
    bool operator()(uint8_t a, uint8_t b) const { return (a != 0) & (b != 0); }
};
struct OrFn {
    bool operator()(uint8_t a, uint8_t b) const { return (a | b) != 0; }
};
struct XorFn {
    bool operator()(uint8_t a, uint8_t b) const { return (a != 0) != (b != 0); }
};
template <class F>
ElementLoop of_bools() {
    return {&scalar_loop<F, bool, uint8_t, uint8_t>, {DType::Bool, DType::Bool}, DType::Bool};
}

/// By width: what the bits mean is of no concern.  The condition is a byte, of which the compiler makes masks.
struct WhereFn {
    template <class T>
    T operator()(uint8_t condition, T a, T b) const {
        const T mask = static_cast<T>(T(0) - T(condition != 0));
        return static_cast<T>((a & mask) | (b & ~mask));
    }
};
template <class T>
ElementLoop where_of(DType t) {
    return {&scalar_loop<WhereFn, T, uint8_t, T, T>, {DType::Bool, t, t}, t};
}
ElementLoop where_loop(DType t) {
    switch (size_of(t)) {
        case 1: return where_of<uint8_t>(t);
        case 2: return where_of<uint16_t>(t);
        case 4: return where_of<uint32_t>(t);
        default: return where_of<uint64_t>(t);
    }
}

ElementLoop find_comparison(OpCode op, DType t) {
    switch (op) {
        case OpCode::Eq: return predicates<EqFn, 2>(t);
        case OpCode::Ne: return predicates<NeFn, 2>(t);
        case OpCode::Lt: return predicates<LtFn, 2>(t);
        case OpCode::Le: return predicates<LeFn, 2>(t);
        case OpCode::Gt: return predicates<GtFn, 2>(t);
        case OpCode::Ge: return predicates<GeFn, 2>(t);
        case OpCode::LogicalAnd: return of_bools<AndFn>();
        case OpCode::LogicalOr: return of_bools<OrFn>();
        case OpCode::LogicalXor: return of_bools<XorFn>();
        case OpCode::Where: return where_loop(t);
        default: return {};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {

HWY_EXPORT(find_comparison);
CLIKART_ELEMENTWISE_KERNELS(find_comparison)
CLIKART_ELEMENTWISE(eq, Eq)
CLIKART_ELEMENTWISE(ne, Ne)
CLIKART_ELEMENTWISE(lt, Lt)
CLIKART_ELEMENTWISE(le, Le)
CLIKART_ELEMENTWISE(gt, Gt)
CLIKART_ELEMENTWISE(ge, Ge)
CLIKART_ELEMENTWISE(logical_and, LogicalAnd)
CLIKART_ELEMENTWISE(logical_or, LogicalOr)
CLIKART_ELEMENTWISE(logical_xor, LogicalXor)
CLIKART_ELEMENTWISE(where, Where)

}  // namespace clikart::cpu
#endif
