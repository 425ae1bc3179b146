// The blocked product.  The inner kernel keeps kRows x 2 vectors of C in registers; A and B come packed: rows of A at a
// fixed distance, B in strips as wide as the kernel.  What stays in the first-level cache is used where it is.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "backends/cpu/convert.h"
#include "backends/cpu/gemm.h"

#ifndef CLIKART_CPU_GEMM_ONCE
#define CLIKART_CPU_GEMM_ONCE
namespace clikart::cpu {

/// What one accumulator dtype needs.
struct GemmKernels {
    GemmFn gemm;
    BlendFn blend;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// As many rows as the registers hold beside two vectors of B.
constexpr int kRows = HWY_TARGET == HWY_AVX3 ? 14 : HWY_TARGET == HWY_AVX2 ? 6 : 4;
constexpr int kVectors = 2;

template <class T>
struct Blocking {
    static constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<T>()));
    static constexpr int64_t kWidth = kVectors * kLanes;                                 // columns of a strip
    static constexpr int64_t kDepth = kDepthBytes / static_cast<int64_t>(sizeof(T));     // of a block
    static constexpr int64_t kDistance = kDepth + 64 / static_cast<int64_t>(sizeof(T));  // of packed rows: not a power of two, which would share cache sets
    static constexpr int64_t kHeight = 10 * kRows;                                       // of a block
};

/// __builtin_prefetch asks for a line to read unless the compiler may assume more of the processor: a second request, on the first write, then has to make it
/// this core's own.
/// Every 64-bit processor takes prefetchw, if only as an instruction that does nothing.
HWY_INLINE void prefetch_to_write(const void* to) {
#if HWY_ARCH_X86
    asm volatile("prefetchw %0" ::"m"(*static_cast<const char*>(to)));
#else
    __builtin_prefetch(to, 1);
#endif
}

template <class V>
HWY_INLINE V multiply_add(V a, V b, V c) {
    if constexpr (hwy::IsFloat<hn::TFromV<V>>()) {
        return hn::MulAdd(a, b, c);
    } else {
        return hn::Add(hn::Mul(a, b), c);
    }
}

/// What is read ahead, one line of the cache at each step of k.
struct Ahead {
    const char* line = nullptr;
    int64_t step = 0;  // bytes
};

/// R rows and one strip of C: set, or added to.  What comes from memory (C, and `ahead`) is asked for while there is enough
/// to compute; asked for all at once, it would hold up the loads of B.
template <class T, int R>
void multiply_strip(const T* HWY_RESTRICT a, int64_t a_row, const T* HWY_RESTRICT b, int64_t b_row, T* HWY_RESTRICT c, int64_t c_row, int64_t k, bool set,
                    Ahead ahead) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    constexpr int64_t lanes = Blocking<T>::kLanes;
    constexpr int kGroups = (R + 2) / 3;  // of rows with one address: beside it, the processor adds one or two distances
    const T* rows[kGroups];
#pragma GCC unroll 16
    for (int g = 0; g < kGroups; ++g) rows[g] = a + 3 * g * a_row;
    V left[R], right[R];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) left[r] = right[r] = hn::Zero(d);
    const auto step = [&](int64_t p) HWY_ATTR {
        const V b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + lanes);
        b += b_row;
        __builtin_prefetch(ahead.line, 0, 2);  // to the second-level cache: the first has no room for it yet
        ahead.line += ahead.step;
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const V factor = hn::Set(d, rows[r / 3][r % 3 * a_row + p]);
            left[r] = multiply_add(factor, b0, left[r]);
            right[r] = multiply_add(factor, b1, right[r]);
        }
    };
    const int64_t first = std::min<int64_t>(R, k);
    const T* to_come = c;
    for (int64_t p = 0; p < first; ++p) {
        prefetch_to_write(to_come);
        prefetch_to_write(to_come + lanes);
        to_come += c_row;
        step(p);
    }
#pragma GCC unroll 4
    for (int64_t p = first; p < k; ++p) step(p);
    // The block's sums are added to those before as a whole, so that rounding grows with the number of blocks and not with k.
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        T* const to = c + r * c_row;
        if (!set) left[r] = hn::Add(hn::LoadU(d, to), left[r]), right[r] = hn::Add(hn::LoadU(d, to + lanes), right[r]);
        hn::StoreU(left[r], d, to);
        hn::StoreU(right[r], d, to + lanes);
    }
}

template <class T>
using StripFn = void (*)(const T*, int64_t, const T*, int64_t, T*, int64_t, int64_t, bool, Ahead);

template <class T, int... R>
StripFn<T> strip_of(int rows, std::integer_sequence<int, R...>) {
    static constexpr StripFn<T> kernels[] = {&multiply_strip<T, R + 1>...};
    return kernels[rows - 1];
}

/// A place that elements come from, converted to T where they are stored otherwise.
template <class T>
class Source {
public:
    Source(const void* data, DType stored, DType computed) : data_(static_cast<const char*>(data)), element_(size_of(stored)) {
        if (size_of(stored) != size_of(computed)) convert_ = find_convert(stored, computed);
    }
    /// n elements from `at`, `stride` apart, in `room` or where they are.
    const T* run(int64_t at, int64_t stride, int64_t n, T* room) const {
        const char* const from = data_ + at * element_;
        if (convert_) {
            convert_(from, stride, room, 1, n);
            return room;
        }
        const T* const in = reinterpret_cast<const T*>(from);
        if (stride == 1) return in;
        for (int64_t i = 0; i < n; ++i) room[i] = in[i * stride];
        return room;
    }
    bool as_stored() const noexcept { return !convert_; }
    const T* data() const noexcept { return reinterpret_cast<const T*>(data_); }

private:
    const char* data_;
    int64_t element_;
    ConvertFn convert_ = nullptr;
};

template <class T>
HWY_INLINE void copy_run(const T* from, T* to, int64_t n) {
    const hn::ScalableTag<T> d;
    constexpr int64_t lanes = Blocking<T>::kLanes;
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    for (; i < n; ++i) to[i] = from[i];
}

/// `height` rows of A and `depth` of its columns, to rows at the fixed distance.
template <class T>
void pack_rows(const Source<T>& from, int64_t at, int64_t row, int64_t column, int64_t height, int64_t depth, T* to) {
    constexpr int64_t distance = Blocking<T>::kDistance;
    T room[std::max(Blocking<T>::kDepth, Blocking<T>::kHeight)];
    if (row == 1 && column != 1) {  // columns are contiguous
        for (int64_t p = 0; p < depth; ++p) {
            const T* const in = from.run(at + p * column, 1, height, room);
            for (int64_t r = 0; r < height; ++r) to[r * distance + p] = in[r];
        }
        return;
    }
    for (int64_t r = 0; r < height; ++r) copy_run(from.run(at + r * row, column, depth, room), to + r * distance, depth);
}

/// Four lines of contiguous elements become columns of a strip.  Wide elements go through registers.
template <class T>
void interleave(const T* const (&lines)[4], int64_t n, T* to) {
    constexpr int64_t width = Blocking<T>::kWidth;
    int64_t p = 0;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (sizeof(T) == 4) {
        const hn::ScalableTag<T> d;
        const hn::Repartition<uint64_t, decltype(d)> d64;
        const hn::FixedTag<T, 4> quarter;
        constexpr int64_t lanes = Blocking<T>::kLanes;
        HWY_ALIGN T block[4 * lanes];
        for (; p + lanes <= n; p += lanes) {
            const auto l0 = hn::LoadU(d, lines[0] + p), l1 = hn::LoadU(d, lines[1] + p), l2 = hn::LoadU(d, lines[2] + p), l3 = hn::LoadU(d, lines[3] + p);
            const auto a = hn::BitCast(d64, hn::InterleaveLower(d, l0, l1)), b = hn::BitCast(d64, hn::InterleaveLower(d, l2, l3));
            const auto e = hn::BitCast(d64, hn::InterleaveUpper(d, l0, l1)), f = hn::BitCast(d64, hn::InterleaveUpper(d, l2, l3));
            hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, a, b)), d, block);
            hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, a, b)), d, block + lanes);
            hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, e, f)), d, block + 2 * lanes);
            hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, e, f)), d, block + 3 * lanes);
            for (int64_t q = 0; q < lanes; q += 4) {
                for (int64_t i = 0; i < 4; ++i) hn::StoreU(hn::Load(quarter, block + i * lanes + q), quarter, to + (p + q + i) * width);
            }
        }
    }
    if constexpr (sizeof(T) == 8) {
        const hn::ScalableTag<T> d;
        const hn::FixedTag<T, 2> pair;
        constexpr int64_t lanes = Blocking<T>::kLanes;
        HWY_ALIGN T block[4 * lanes];
        for (; p + lanes <= n; p += lanes) {
            const auto l0 = hn::LoadU(d, lines[0] + p), l1 = hn::LoadU(d, lines[1] + p), l2 = hn::LoadU(d, lines[2] + p), l3 = hn::LoadU(d, lines[3] + p);
            hn::Store(hn::InterleaveLower(d, l0, l1), d, block);
            hn::Store(hn::InterleaveLower(d, l2, l3), d, block + lanes);
            hn::Store(hn::InterleaveUpper(d, l0, l1), d, block + 2 * lanes);
            hn::Store(hn::InterleaveUpper(d, l2, l3), d, block + 3 * lanes);
            for (int64_t q = 0; q < lanes; q += 2) {
                for (int64_t i = 0; i < 4; ++i) hn::StoreU(hn::Load(pair, block + i * lanes + q), pair, to + (p + q + i / 2) * width + i % 2 * 2);
            }
        }
    }
#endif
    for (; p < n; ++p) {
        for (int i = 0; i < 4; ++i) to[p * width + i] = lines[i][p];
    }
}

/// `depth` rows of B and `width` of its columns, to strips; what is missing in the last becomes zero.
template <class T>
void pack_strips(const Source<T>& from, int64_t at, int64_t row, int64_t column, int64_t depth, int64_t width, T* to) {
    constexpr int64_t strip = Blocking<T>::kWidth;
    if (row == 1 && column != 1) {  // columns are contiguous
        T room[4][Blocking<T>::kDepth];
        for (int64_t j = 0; j < width; j += 4) {
            T* const out = to + j / strip * strip * depth + j % strip;
            if (j + 4 <= width) {
                const T* lines[4];
                for (int i = 0; i < 4; ++i) lines[i] = from.run(at + (j + i) * column, 1, depth, room[i]);
                interleave(lines, depth, out);
                continue;
            }
            for (int64_t i = 0; j + i < width; ++i) {
                const T* const line = from.run(at + (j + i) * column, 1, depth, room[0]);
                for (int64_t p = 0; p < depth; ++p) out[p * strip + i] = line[p];
            }
        }
    } else {
        constexpr int64_t tile = 8 * strip;
        T room[tile];
        for (int64_t p = 0; p < depth; ++p) {
            for (int64_t j = 0; j < width; j += tile) {
                const int64_t n = std::min(tile, width - j);
                const T* const in = from.run(at + p * row + j * column, column, n, room);
                for (int64_t i = 0; i < n; i += strip) copy_run(in + i, to + (j + i) * depth + p * strip, std::min(strip, n - i));
            }
        }
    }
    if (const int64_t rest = width % strip) {
        T* const last = to + width / strip * strip * depth;
        for (int64_t p = 0; p < depth; ++p) std::fill(last + p * strip + rest, last + (p + 1) * strip, T(0));
    }
}

/// The operands of the next piece, as lines.
class NextLines {
public:
    static constexpr int64_t kLine = 64;
    void add(const void* from, int64_t bytes) noexcept { ranges_[count_++] = {static_cast<const char*>(from), bytes}; }
    Ahead take(int64_t lines) noexcept {
        while (first_ < count_ && ranges_[first_].bytes <= 0) ++first_;
        if (first_ == count_) return {};
        Range& range = ranges_[first_];
        range.bytes -= lines * kLine;
        return {std::exchange(range.at, range.at + lines * kLine), kLine};
    }

private:
    struct Range {
        const char* at;
        int64_t bytes;
    };
    Range ranges_[2];
    int first_ = 0, count_ = 0;
};

template <class T>
void gemm(const GemmPiece& piece, DType stored) {
    using B = Blocking<T>;
    constexpr int64_t strip = B::kWidth;
    auto* const c = static_cast<T*>(piece.c);
    if (piece.k == 0) {
        for (int64_t i = 0; i < piece.m; ++i) std::fill_n(c + i * piece.c_row, piece.n, T(0));
        return;
    }
    const DType computed = accumulator_of(stored);
    const Source<T> from_a(piece.a, stored, computed), from_b(piece.b, stored, computed);
    constexpr int64_t kNear = kNearBytes / static_cast<int64_t>(sizeof(T));
    // Packing B pays where many rows use it and, with its gaps, it would not stay in the first-level cache.
    const bool near = is_near(piece.k, piece.n, computed);
    const bool direct = piece.b_column == 1 && from_b.as_stored() && (piece.k * std::abs(piece.b_row) <= kNear || piece.m <= 2 * kRows);
    // Rows of A are read where they are if each is used up at once; far apart, they would share cache sets.
    constexpr int64_t kClose = 2048 / static_cast<int64_t>(sizeof(T));
    const bool direct_a = near && piece.a_column == 1 && from_a.as_stored() && std::abs(piece.a_row) <= kClose;
    const int64_t whole = direct ? piece.n / strip * strip : 0, deepest = std::min(piece.k, B::kDepth);
    const int64_t strips = (piece.n - whole + strip - 1) / strip;
    const Scratch rows(static_cast<size_t>(direct_a ? 1 : std::min(piece.m, B::kHeight) * B::kDistance) * sizeof(T));
    const Scratch packed(static_cast<size_t>(std::max<int64_t>(1, strips * strip * deepest)) * sizeof(T));
    NextLines next;
    if (direct && direct_a && piece.a_row == piece.k && piece.b_row == piece.n) {
        next.add(piece.next_a, piece.m * piece.k * static_cast<int64_t>(sizeof(T)));
        next.add(piece.next_b, piece.k * piece.n * static_cast<int64_t>(sizeof(T)));
    }
    for (int64_t k = 0; k < piece.k; k += B::kDepth) {
        const int64_t depth = std::min(B::kDepth, piece.k - k);
        if (whole < piece.n) pack_strips(from_b, k * piece.b_row + whole * piece.b_column, piece.b_row, piece.b_column, depth, piece.n - whole, packed.as<T>());
        for (int64_t i = 0; i < piece.m; i += B::kHeight) {
            const int64_t height = std::min(B::kHeight, piece.m - i), panels = (height + kRows - 1) / kRows;
            if (!direct_a) pack_rows(from_a, i * piece.a_row + k * piece.a_column, piece.a_row, piece.a_column, height, depth, rows.as<T>());
            const T* const a = direct_a ? from_a.data() + i * piece.a_row : rows.as<T>();
            const int64_t a_row = direct_a ? piece.a_row : B::kDistance;
            const auto multiply_panel = [&](int64_t panel, int64_t j) {  // panels are of as equal heights as can be
                const bool in_place = j < whole;
                const T* const b = in_place ? from_b.data() + k * piece.b_row + j : packed.as<T>() + (j - whole) * depth;
                const int64_t b_row = in_place ? piece.b_row : strip, width = std::min(strip, piece.n - j);
                const int64_t r = height / panels + (panel < height % panels), first = height / panels * panel + std::min(panel, height % panels);
                const StripFn<T> run = strip_of<T>(static_cast<int>(r), std::make_integer_sequence<int, kRows>());
                T* const to = c + (i + first) * piece.c_row + j;
                const Ahead ahead = next.take(depth);
                if (width == strip) {
                    run(a + first * a_row, a_row, b, b_row, to, piece.c_row, depth, k == 0, ahead);
                } else {
                    T part[kRows * strip];
                    if (k > 0) {
                        for (int64_t l = 0; l < r; ++l) std::copy_n(to + l * piece.c_row, width, part + l * strip);
                    }
                    run(a + first * a_row, a_row, b, b_row, part, strip, depth, k == 0, ahead);
                    for (int64_t l = 0; l < r; ++l) std::copy_n(part + l * strip, width, to + l * piece.c_row);
                }
            };
            if (near) {
                for (int64_t panel = 0; panel < panels; ++panel) {
                    for (int64_t j = 0; j < piece.n; j += strip) multiply_panel(panel, j);
                }
            } else {
                for (int64_t j = 0; j < piece.n; j += strip) {
                    for (int64_t panel = 0; panel < panels; ++panel) multiply_panel(panel, j);
                }
            }
        }
    }
}

template <class T>
void blend(void* row_bytes, int64_t n, double alpha, double beta, const void* added_bytes, int64_t added_stride) {
    auto* const row = static_cast<T*>(row_bytes);
    const auto* const added = static_cast<const T*>(added_bytes);
    const T a = static_cast<T>(static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, T>>(alpha));
    const T b = static_cast<T>(static_cast<std::conditional_t<std::is_integral_v<T>, int64_t, T>>(beta));
    if (a != T(1)) {
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(a * row[i]);
    }
    if (!added) return;
    if (added_stride == 0) {
        const T value = static_cast<T>(b * *added);
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(row[i] + value);
    } else if (b == T(1)) {
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(row[i] + added[i]);
    } else {
        for (int64_t i = 0; i < n; ++i) row[i] = static_cast<T>(row[i] + static_cast<T>(b * added[i]));
    }
}

GemmKernels find_kernels(DType accumulator) {
    switch (accumulator) {
        case DType::Int16: return {&gemm<int16_t>, &blend<int16_t>};
        case DType::Int32: return {&gemm<int32_t>, &blend<int32_t>};
        case DType::Int64: return {&gemm<int64_t>, &blend<int64_t>};
        case DType::Float64: return {&gemm<double>, &blend<double>};
        default: return {&gemm<float>, &blend<float>};
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_kernels);

}  // namespace

DType accumulator_of(DType stored) noexcept {
    switch (stored) {
        case DType::UInt8:
        case DType::Int8:
        case DType::UInt16: return DType::Int16;
        case DType::UInt32: return DType::Int32;
        case DType::UInt64: return DType::Int64;
        default: return lane_of(stored);
    }
}

GemmFn find_gemm(DType stored) {
    return HWY_DYNAMIC_DISPATCH(find_kernels)(accumulator_of(stored)).gemm;
}

BlendFn find_blend(DType accumulator) {
    return HWY_DYNAMIC_DISPATCH(find_kernels)(accumulator).blend;
}

}  // namespace clikart::cpu
#endif
