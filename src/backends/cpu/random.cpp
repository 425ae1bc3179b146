// Random numbers, each a function of the call's seed and offset and of its own place.
//
// What is computed with them uses single operations only, which IEEE 754 leaves no choice in (no fused multiply-add, no
// function of a library), so that the numbers are the same for every instruction set.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/random.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/copy.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/philox.h"

#ifndef CLIKART_CPU_RANDOM_ONCE
#define CLIKART_CPU_RANDOM_ONCE
namespace clikart::cpu {

inline constexpr int64_t kTileGroups = 16;  // of words that are made at once
inline constexpr int64_t kTileWords = kTileGroups * kGroupWords;

/// From low on; `limit` is the largest number that may come out, `digits` how many bits a number has before it is scaled.
struct Uniform {
    double low, distance, limit;
    int digits;
};
struct Normal {
    double mean, std;
};
struct Integers {
    int64_t low;
    uint64_t distance;  // between low and high
};
/// p: the probability that an element is dropped.
struct Dropout {
    double p;
};

/// The functions of one lane; words are those of whole groups, results as many as the words make.
template <class T>
struct RandomFns {
    void (*uniform)(const uint32_t* words, int64_t groups, T* out, const Uniform&, bool streamed);
    void (*normal)(const uint32_t* words, int64_t groups, T* out, const Normal&, bool streamed);
    /// Ones where the number is below p; false where a probability is none.
    bool (*bernoulli)(const uint32_t* words, const T* p, int64_t n, T* out);
    void (*dropout)(const uint32_t* words, const T* x, int64_t n, T* out, const Dropout&);
};

struct RandomTable {
    void (*words)(uint64_t seed, uint64_t first, int64_t groups, uint32_t* words);
    void (*integers)(const uint32_t* words, int64_t groups, int64_t* out, const Integers&);
    RandomFns<float> f32;
    RandomFns<double> f64;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
void make_words(uint64_t seed, uint64_t first, int64_t groups, uint32_t* words) {
    for (int64_t g = 0; g < groups; ++g, words += kGroupWords) {
        for (int64_t b = 0; b < kGroupBlocks; ++b) {
            const PhiloxBlock block = Philox::block(seed, first + static_cast<uint64_t>(g * kGroupBlocks + b));
            for (int64_t w = 0; w < 4; ++w) words[w * kGroupBlocks + b] = block[static_cast<size_t>(w)];
        }
    }
}
#else
/// Even and odd blocks go apart, each word of them in the lower half of 64 bits, which is where a multiplication takes its
/// operands from and leaves what it does not need above.
void make_words(uint64_t seed, uint64_t first, int64_t groups, uint32_t* words) {
    const hn::CappedTag<uint32_t, kGroupBlocks> d;
    const hn::RepartitionToWide<decltype(d)> wide;
    using V = hn::Vec<decltype(wide)>;
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto times = [&](V word, uint32_t factor) { return hn::MulEven(hn::BitCast(d, word), hn::Set(d, factor)); };
    for (int64_t g = 0; g < groups; ++g, words += kGroupWords) {
        for (int64_t b = 0; b < kGroupBlocks; b += lanes) {
            const V blocks = hn::Set(wide, first + static_cast<uint64_t>(g * kGroupBlocks + b));
            const V even = hn::Add(blocks, hn::ShiftLeft<1>(hn::Iota(wide, 0)));
            V c[2][4];
            for (int k = 0; k < 2; ++k) {
                c[k][0] = k ? hn::Add(even, hn::Set(wide, 1)) : even;
                c[k][1] = hn::ShiftRight<32>(c[k][0]);
                c[k][2] = c[k][3] = hn::Zero(wide);
            }
            uint32_t key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
            HWY_UNROLL(Philox::kRounds)
            for (int round = 0; round < Philox::kRounds; ++round) {
                const V k0 = hn::Set(wide, key0), k1 = hn::Set(wide, key1);
                for (auto& w : c) {
                    const V p0 = times(w[0], Philox::kFactor0), p1 = times(w[2], Philox::kFactor1);
                    w[0] = hn::Xor3(hn::ShiftRight<32>(p1), w[1], k0);
                    w[1] = p1;
                    w[2] = hn::Xor3(hn::ShiftRight<32>(p0), w[3], k1);
                    w[3] = p0;
                }
                key0 += Philox::kStep0;
                key1 += Philox::kStep1;
            }
            for (int w = 0; w < 4; ++w) {
                const auto both = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(c[1][w])), hn::BitCast(d, c[0][w]));
                hn::StoreU(both, d, words + w * kGroupBlocks + b);
            }
        }
    }
}
#endif

// ---- from words to numbers

/// The upper `digits` bits of words as floats, and of pairs of words as doubles; see philox.h for which pairs.
template <class D>
HWY_INLINE hn::Vec<D> whole_numbers(D d, const uint32_t* word, int digits) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    return hn::ConvertTo(d, hn::BitCast(di, hn::ShiftRightSame(hn::LoadU(du, word), 32 - digits)));
}

constexpr int64_t kPairs = kGroupWords / 2;

/// The numbers of one group; `T` in the order of elements.
HWY_INLINE void whole_numbers(const uint32_t* words, int digits, float* out) {
    const hn::CappedTag<float, kGroupBlocks> d;
    for (int64_t i = 0; i < kGroupWords; i += static_cast<int64_t>(hn::Lanes(d))) hn::Store(whole_numbers(d, words + i, digits), d, out + i);
}
HWY_INLINE void whole_numbers(const uint32_t* words, int digits, double* out) {
    for (int64_t half = 0; half < 2; ++half) {
        const uint32_t *low = words + half * kPairs, *high = low + kGroupBlocks;
        for (int64_t i = 0; i < kGroupBlocks; ++i) {
            const uint64_t bits = (uint64_t{high[i]} << 32 | low[i]) >> (64 - digits);
            out[half * kGroupBlocks + i] = static_cast<double>(static_cast<int64_t>(bits));
        }
    }
}

/// How many elements a group makes.
template <class T>
constexpr int64_t kElements = sizeof(T) == sizeof(float) ? kGroupWords : kPairs;

template <class D, class V, class T>
HWY_INLINE void put(D d, V v, T* to, bool streamed) {
    if (streamed) {
        hn::Stream(v, d, to);
    } else {
        hn::StoreU(v, d, to);
    }
}

template <class T>
void uniform(const uint32_t* words, int64_t groups, T* out, const Uniform& u, bool streamed) {
    const hn::CappedTag<T, kGroupBlocks> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    const auto unit = hn::Set(d, static_cast<T>(std::ldexp(1.0, -u.digits)));
    const auto low = hn::Set(d, static_cast<T>(u.low)), distance = hn::Set(d, static_cast<T>(u.distance)), limit = hn::Set(d, static_cast<T>(u.limit));
    HWY_ALIGN T numbers[kElements<T>];
    for (int64_t g = 0; g < groups; ++g, words += kGroupWords, out += kElements<T>) {
        whole_numbers(words, u.digits, numbers);
        for (int64_t i = 0; i < kElements<T>; i += step) {
            const auto part = hn::Mul(hn::Mul(hn::Load(d, numbers + i), unit), distance);
            put(d, hn::Min(hn::Add(part, low), limit), out + i, streamed);
        }
    }
}

/// 1 / (2 k + 1)
template <class T>
constexpr T odd_inverse(int k) {
    return static_cast<T>(1.0L / (2 * k + 1));
}
/// 1 / k!
template <class T>
constexpr T factorial_inverse(int k) {
    long double product = 1;
    for (int i = 2; i <= k; ++i) product *= i;
    return static_cast<T>(1 / product);
}

template <class D, class V>
HWY_INLINE V times_plus(D d, V x, V factor, hn::TFromD<D> number) {
    return hn::Add(hn::Mul(x, factor), hn::Set(d, number));
}

/// ln u of a normal number: u = 2^e m with m near one, and ln m = 2 artanh((m - 1) / (m + 1)).
template <class D, class V>
HWY_INLINE V natural_log(D d, V u) {
    using T = hn::TFromD<D>;
    constexpr bool single = sizeof(T) == sizeof(float);
    constexpr int mantissa = single ? 23 : 52, terms = single ? 5 : 11;
    const hn::RebindToSigned<D> di;
    using I = hn::TFromD<decltype(di)>;
    constexpr I half_root = single ? static_cast<I>(0x3f3504f3) : static_cast<I>(0x3fe6a09e667f3bcd);  // sqrt(1/2)
    const auto bits = hn::BitCast(di, u);
    const auto exponent = hn::ShiftRight<mantissa>(hn::Sub(bits, hn::Set(di, half_root)));
    const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<mantissa>(exponent)));
    const V one = hn::Set(d, 1), s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), square = hn::Mul(s, s);
    V series = hn::Set(d, odd_inverse<T>(terms));
    for (int k = terms - 1; k >= 1; --k) series = times_plus(d, series, square, odd_inverse<T>(k));
    const V twice = hn::Add(s, s);
    const V log = hn::Add(hn::Mul(hn::Mul(twice, square), series), twice);
    return hn::Add(log, hn::Mul(hn::ConvertTo(d, exponent), hn::Set(d, static_cast<T>(0.693147180559945309417L))));
}

/// The cosine and sine of 2 pi u for u in [0, 1): the nearest quarter turn is taken away, and Taylor's series do the rest.
template <class D, class V>
HWY_INLINE void circle(D d, V u, V& cos, V& sin) {
    using T = hn::TFromD<D>;
    constexpr int terms = sizeof(T) == sizeof(float) ? 5 : 9;
    const hn::RebindToSigned<D> di;
    const V quarters = hn::Mul(u, hn::Set(d, 4));
    const auto nearest = hn::ConvertTo(di, hn::Add(quarters, hn::Set(d, static_cast<T>(0.5))));  // not negative: truncates downwards
    const V r = hn::Mul(hn::Sub(quarters, hn::ConvertTo(d, nearest)), hn::Set(d, static_cast<T>(1.57079632679489661923L)));
    const V square = hn::Neg(hn::Mul(r, r));
    V s = hn::Set(d, factorial_inverse<T>(2 * terms + 1)), c = hn::Set(d, factorial_inverse<T>(2 * terms));
    for (int k = terms - 1; k >= 1; --k) {
        s = times_plus(d, s, square, factorial_inverse<T>(2 * k + 1));
        c = times_plus(d, c, square, factorial_inverse<T>(2 * k));
    }
    s = hn::Add(hn::Mul(hn::Mul(r, square), s), r);
    c = hn::Add(hn::Mul(c, square), hn::Set(d, 1));
    const auto odd = hn::Ne(hn::And(nearest, hn::Set(di, 1)), hn::Zero(di));
    const auto sign_of_sin = hn::ShiftLeft<sizeof(T) * 8 - 2>(hn::And(nearest, hn::Set(di, 2)));
    const auto sign_of_cos = hn::ShiftLeft<sizeof(T) * 8 - 2>(hn::And(hn::Add(nearest, hn::Set(di, 1)), hn::Set(di, 2)));
    const auto swapped = hn::RebindMask(d, odd);
    sin = hn::Xor(hn::IfThenElse(swapped, c, s), hn::BitCast(d, sign_of_sin));
    cos = hn::Xor(hn::IfThenElse(swapped, s, c), hn::BitCast(d, sign_of_cos));
}

/// Box and Muller: from two uniform numbers a radius and an angle, whose two coordinates go to elements half a group apart.
template <class T>
void normal(const uint32_t* words, int64_t groups, T* out, const Normal& params, bool streamed) {
    const hn::CappedTag<T, kGroupBlocks> d;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    constexpr int digits = sizeof(T) == sizeof(float) ? 31 : 53;
    constexpr int64_t half = kElements<T> / 2;
    const auto unit = hn::Set(d, static_cast<T>(std::ldexp(1.0, -digits))), one = hn::Set(d, 1);
    const auto mean = hn::Set(d, static_cast<T>(params.mean)), std = hn::Set(d, static_cast<T>(params.std));
    HWY_ALIGN T numbers[kElements<T>];
    for (int64_t g = 0; g < groups; ++g, words += kGroupWords, out += kElements<T>) {
        whole_numbers(words, digits, numbers);
        for (int64_t i = 0; i < half; i += step) {
            const auto u = hn::Mul(hn::Add(hn::Load(d, numbers + i), one), unit);  // in (0, 1]
            const auto radius = hn::Sqrt(hn::Mul(natural_log(d, u), hn::Set(d, -2)));
            auto x = one, y = one;
            circle(d, hn::Mul(hn::Load(d, numbers + half + i), unit), x, y);
            put(d, hn::Add(hn::Mul(hn::Mul(radius, x), std), mean), out + i, streamed);
            put(d, hn::Add(hn::Mul(hn::Mul(radius, y), std), mean), out + half + i, streamed);
        }
    }
}

void integers(const uint32_t* words, int64_t groups, int64_t* out, const Integers& range) {
    const auto low = static_cast<uint64_t>(range.low);
    for (int64_t g = 0; g < 2 * groups; ++g, words += kPairs, out += kGroupBlocks) {
        const uint32_t* const high = words + kGroupBlocks;
        if (range.distance <= 0xffffffffu) {  // the same in fewer steps
            const auto distance = static_cast<uint32_t>(range.distance);
            for (int64_t i = 0; i < kGroupBlocks; ++i) {
                out[i] = static_cast<int64_t>(low + ((uint64_t{high[i]} * distance + (uint64_t{words[i]} * distance >> 32)) >> 32));
            }
        } else {
            for (int64_t i = 0; i < kGroupBlocks; ++i) out[i] = static_cast<int64_t>(low + upper_product(uint64_t{high[i]} << 32 | words[i], range.distance));
        }
    }
}

bool bernoulli_words(const uint32_t* words, const float* p, int64_t n, float* out) {
    int32_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {  // 31 bits: signed numbers are what there are instructions for
        const double border = static_cast<double>(p[i]) * 2147483648.0;
        bad |= !(p[i] >= 0) | !(p[i] <= 1);
        out[i] = static_cast<double>(static_cast<int32_t>(words[i] >> 1)) < border ? 1.0f : 0.0f;
    }
    return bad == 0;
}
bool bernoulli_pairs(const uint32_t* words, const double* p, int64_t n, double* out) {
    bool good = true;
    HWY_ALIGN double numbers[kPairs];
    for (int64_t i = 0; i < n; i += kPairs, words += kGroupWords) {
        whole_numbers(words, 53, numbers);
        for (int64_t k = i; k < std::min(n, i + kPairs); ++k) {
            good &= p[k] >= 0 && p[k] <= 1;
            out[k] = numbers[k - i] < p[k] * 9007199254740992.0 ? 1.0 : 0.0;
        }
    }
    return good;
}

template <class T>
void dropout(const uint32_t* words, const T* x, int64_t n, T* out, const Dropout& params) {
    const T scale = params.p < 1 ? static_cast<T>(1 / (1 - params.p)) : T(0);
    const auto dropped = static_cast<uint32_t>(std::min(params.p * 4294967296.0, 4294967295.0));
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * (words[i] >= dropped ? scale : T(0));
}

RandomTable find_random() {
    return {&make_words,
            &integers,
            {&uniform<float>, &normal<float>, &bernoulli_words, &dropout<float>},
            {&uniform<double>, &normal<double>, &bernoulli_pairs, &dropout<double>}};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_random);

/// How many elements a group of words makes.
template <class T>
inline constexpr int64_t kPerGroup = sizeof(T) == sizeof(float) ? kGroupWords : kGroupWords / 2;

template <class T>
RandomFns<T> fns_of(const RandomTable& table) {
    if constexpr (sizeof(T) == sizeof(float)) {
        return table.f32;
    } else {
        return table.f64;
    }
}

/// Where a call draws from: the last two attributes of every random operator.
struct Source {
    uint64_t seed, offset;
    explicit Source(const KernelCall& call)
        : seed(static_cast<uint64_t>(call.attributes->integer(call.attributes->count - 2))),
          offset(static_cast<uint64_t>(call.attributes->integer(call.attributes->count - 1))) {}
};

/// Calls f(begin, n, groups, words) for tiles of the result's elements, `per_group` of which a group of words makes.
template <class F>
void in_tiles(const KernelCall& call, int64_t count, int64_t per_group, F&& f) {
    const Source source(call);
    const auto make = HWY_DYNAMIC_DISPATCH(find_random)().words;
    const int64_t tile = kTileGroups * per_group;
    static_assert(kPiece % (kTileGroups * kGroupWords) == 0);
    parallel_for(call, (count + kPiece - 1) / kPiece, [&](int64_t piece) {
        alignas(64) uint32_t words[kTileWords];
        for (int64_t begin = piece * kPiece; begin < std::min(count, (piece + 1) * kPiece); begin += tile) {
            const int64_t n = std::min(tile, count - begin), groups = (n + per_group - 1) / per_group;
            make(source.seed, source.offset + static_cast<uint64_t>(begin / per_group * kGroupBlocks), groups, words);
            f(begin, n, groups, words);
        }
        hwy::FlushStream();
    });
}

/// Runs fill(words, groups, out, parameters, streamed) over the result.
template <class T, class P>
void fill(const KernelCall& call, void (*run)(const uint32_t*, int64_t, T*, const P&, bool), const P& parameters) {
    const View& view = call.outputs[0];
    const LaneWriter<T> out(view);
    const int64_t count = numel(shape_of(view));
    const bool streamed = out.as_it_is() && count * static_cast<int64_t>(sizeof(T)) >= kStreamedBytes;
    in_tiles(call, count, kPerGroup<T>, [&](int64_t begin, int64_t n, int64_t groups, const uint32_t* words) {
        if (out.as_it_is() && n == groups * kPerGroup<T>) return run(words, groups, out.place(begin, nullptr), parameters, streamed);
        alignas(64) T room[kTileGroups * kPerGroup<T>];
        run(words, groups, room, parameters, false);
        if (out.as_it_is()) {
            std::copy_n(room, n, out.place(begin, nullptr));
        } else {
            out.finish(begin, n, room);
        }
    });
}

/// The largest number of T below a finite one.
template <class T>
double number_below(double high) {
    if constexpr (std::is_floating_point_v<T>) {
        const T nearest = static_cast<T>(high);
        return static_cast<double>(nearest) < high ? nearest : std::nextafter(nearest, -std::numeric_limits<T>::infinity());
    } else {
        const T nearest(static_cast<float>(high));
        uint32_t bits = nearest.bits;
        if (static_cast<double>(static_cast<float>(nearest)) >= high) {
            const uint32_t magnitude = bits & (T::kSign - 1);
            bits = magnitude == 0 ? T::kSign + 1 : bits == magnitude ? bits - 1 : bits + 1;
        }
        return static_cast<double>(T::decode(static_cast<uint16_t>(bits)));
    }
}

double number_below(DType dtype, double high) {
    switch (dtype) {
        case DType::Float16: return number_below<Half>(high);
        case DType::BFloat16: return number_below<BFloat16>(high);
        case DType::Float32: return number_below<float>(high);
        default: return number_below<double>(high);
    }
}

void uniform(const KernelCall& call) {
    const double low = call.attributes->real(attribute::uniform_low), high = call.attributes->real(attribute::uniform_high);
    const DType dtype = dtype_of(call.outputs[0]);
    const int digits = dtype == DType::Float64 ? 53 : dtype == DType::Float32 ? 24 : dtype == DType::Float16 ? 11 : 8;
    const Uniform parameters{low, high - low, std::max(low, number_below(dtype, high)), digits};
    const RandomTable table = HWY_DYNAMIC_DISPATCH(find_random)();
    if (dtype == DType::Float64) {
        fill<double>(call, table.f64.uniform, parameters);
    } else {
        fill<float>(call, table.f32.uniform, parameters);
    }
}

void normal(const KernelCall& call) {
    const Normal parameters{call.attributes->real(attribute::normal_mean), call.attributes->real(attribute::normal_std)};
    const RandomTable table = HWY_DYNAMIC_DISPATCH(find_random)();
    if (dtype_of(call.outputs[0]) == DType::Float64) {
        fill<double>(call, table.f64.normal, parameters);
    } else {
        fill<float>(call, table.f32.normal, parameters);
    }
}

void randint(const KernelCall& call) {
    const int64_t low = call.attributes->integer(attribute::randint_low), high = call.attributes->integer(attribute::randint_high);
    const Integers range{low, static_cast<uint64_t>(high) - static_cast<uint64_t>(low)};
    const View& out = call.outputs[0];
    const auto run = HWY_DYNAMIC_DISPATCH(find_random)().integers;
    const ConvertFn convert = find_convert(DType::Int64, dtype_of(out));
    const int64_t size = size_of(dtype_of(out));
    in_tiles(call, numel(shape_of(out)), kGroupWords / 2, [&](int64_t begin, int64_t n, int64_t groups, const uint32_t* words) {
        alignas(64) int64_t room[kTileWords / 2];
        run(words, groups, room, range);
        convert(room, 1, static_cast<char*>(out.data) + begin * size, 1, n);
    });
}

template <class T>
void bernoulli_of(const KernelCall& call) {
    const LaneReader<T> in(call.inputs[0]);
    const LaneWriter<T> out(call.outputs[0]);
    const RandomTable table = HWY_DYNAMIC_DISPATCH(find_random)();
    const auto run = fns_of<T>(table).bernoulli;
    in_tiles(call, in.count(), kPerGroup<T>, [&](int64_t begin, int64_t n, int64_t, const uint32_t* words) {
        alignas(64) T in_room[kTileGroups * kPerGroup<T>];
        alignas(64) T out_room[kTileGroups * kPerGroup<T>];
        if (!run(words, in.read(begin, n, in_room), n, out.place(begin, out_room))) fail(ErrorKind::Value, "a probability is outside [0, 1]");
        out.finish(begin, n, out_room);
    });
}
void bernoulli(const KernelCall& call) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        bernoulli_of<double>(call);
    } else {
        bernoulli_of<float>(call);
    }
}

template <class T>
void dropout_of(const KernelCall& call) {
    const LaneReader<T> in(call.inputs[0]);
    const LaneWriter<T> out(call.outputs[0]);
    const RandomTable table = HWY_DYNAMIC_DISPATCH(find_random)();
    const auto run = fns_of<T>(table).dropout;
    const Dropout parameters{call.attributes->real(attribute::dropout_p)};
    in_tiles(call, in.count(), kGroupWords, [&](int64_t begin, int64_t n, int64_t, const uint32_t* words) {
        alignas(64) T in_room[kTileWords];
        alignas(64) T out_room[kTileWords];
        run(words, in.read(begin, n, in_room), n, out.place(begin, out_room), parameters);
        out.finish(begin, n, out_room);
    });
}
void dropout(const KernelCall& call) {
    if (!call.attributes->integer(attribute::dropout_training) || call.attributes->real(attribute::dropout_p) == 0) {
        copy_view(call, call.inputs[0], call.outputs[0]);
    } else if (call.compute == static_cast<int32_t>(DType::Float64)) {
        dropout_of<double>(call);
    } else {
        dropout_of<float>(call);
    }
}

}  // namespace

void random_words(uint64_t seed, uint64_t first, int64_t groups, uint32_t* words) {
    HWY_DYNAMIC_DISPATCH(find_random)().words(seed, first, groups, words);
}

KernelFn kernel_uniform(DType t) {
    return computes(t) ? &kernel<uniform> : nullptr;
}
KernelFn kernel_normal(DType t) {
    return computes(t) ? &kernel<normal> : nullptr;
}
KernelFn kernel_randint(DType t) {
    return computes(t) || is_integer(t) ? &kernel<randint> : nullptr;
}
KernelFn kernel_bernoulli(DType t) {
    return computes(t) ? &kernel<bernoulli> : nullptr;
}
KernelFn kernel_dropout(DType t) {
    return computes(t) ? &kernel<dropout> : nullptr;
}

}  // namespace clikart::cpu
#endif
