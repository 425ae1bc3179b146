// softmax, log_softmax, softmin, along rows or down columns; what does not lie in rows or columns of float or double goes
// through tiles.  Both ways add up in the same order.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/softmax.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/box.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/row_part.h"
#include "backends/cpu/vectors-inl.h"

#ifndef CLIKART_CPU_SOFTMAX_ONCE
#define CLIKART_CPU_SOFTMAX_ONCE
namespace clikart::cpu {

enum class SoftmaxKind { Plain, Log, OfNegative };

/// One row of n contiguous elements.
struct SoftmaxRow {
    const void* in;
    void* out;   // may be `in`
    void* work;  // of n elements; `out` where that is written but once
    int64_t n;
    bool streamed;  // `out` goes past the caches, and is aligned for that
};

/// Columns of n elements; pitches are between their elements.  `out` may be `in`.
struct SoftmaxColumns {
    const void* in;
    int64_t in_pitch;
    void* out;
    int64_t out_pitch;
    int64_t n, columns;
    void* work;  // kColumnWork bytes for each column
};

inline constexpr int64_t kSumBlock = 4096;
inline constexpr int64_t kSumLanes = 16;  // fixed, so that the sum's order is the same for every instruction set
inline constexpr int64_t kColumnWork = (kSumLanes + 2) * static_cast<int64_t>(sizeof(double));

struct SoftmaxFns {
    void (*row)(const SoftmaxRow&);
    void (*columns)(const SoftmaxColumns&);
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, SoftmaxKind Kind, bool streamed>
void softmax_row(const SoftmaxRow& row) {
    const hn::CappedTag<T, kSumLanes> d;
    constexpr auto step = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<T, kSumLanes>()));
    using V = hn::Vec<decltype(d)>;
    const auto* const in = static_cast<const T*>(row.in);
    auto *const out = static_cast<T*>(row.out), *const work = static_cast<T*>(row.work);
    const int64_t n = row.n;
    constexpr T lowest = -std::numeric_limits<T>::infinity();

    const V nothing = hn::Set(d, lowest);
    const auto full = hn::FirstN(d, static_cast<size_t>(step));
    const auto input = [&](int64_t at, auto mask, auto whole) {
        const V x = load(d, mask, whole, in + at), taken = Kind == SoftmaxKind::OfNegative ? hn::Neg(x) : x;
        return whole ? taken : hn::IfThenElse(mask, taken, nothing);
    };

    // A NaN may be lost here, but comes back through exp below.
    constexpr int kAbreast = 4;  // so that one maximum need not wait for the one before
    V largest[kAbreast] = {nothing, nothing, nothing, nothing};
    int64_t abreast = 0;
    for (; abreast + kAbreast * step <= n; abreast += kAbreast * step) {
        for (int k = 0; k < kAbreast; ++k) largest[k] = hn::Max(largest[k], input(abreast + k * step, full, std::true_type()));
    }
    vectors(d, abreast, n, [&](int64_t at, auto mask, auto whole) { largest[0] = hn::Max(largest[0], input(at, mask, whole)); });
    HWY_ALIGN T lanes[kSumLanes] = {};
    hn::Store(hn::Max(hn::Max(largest[0], largest[1]), hn::Max(largest[2], largest[3])), d, lanes);
    T top = lowest;
    for (int64_t l = 0; l < step; ++l) top = lanes[l] > top ? lanes[l] : top;

    // In a block, element i adds to lane i mod kSumLanes, and lanes are folded in halves; blocks add up in double.
    const V shift = hn::Set(d, top);
    double sum = 0;
    for (int64_t block = 0; block < n; block += kSumBlock) {
        V sums[kSumLanes / step];
        for (V& s : sums) s = hn::Zero(d);
        vectors(d, block, std::min(n, block + kSumBlock), [&](int64_t at, auto mask, auto whole) {
            const V e = exp(d, hn::Sub(input(at, mask, whole), shift));
            V& s = sums[at % kSumLanes / step];
            if constexpr (Kind != SoftmaxKind::Log) store(d, e, mask, whole, work + at);
            if constexpr (whole) {
                s = hn::Add(s, e);
            } else {
                s = hn::Add(s, hn::IfThenElseZero(mask, e));
            }
        });
        for (int64_t v = 0; v < kSumLanes / step; ++v) hn::Store(sums[v], d, lanes + v * step);
        for (int64_t half = kSumLanes / 2; half >= 1; half /= 2) {
            for (int64_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
        }
        sum += static_cast<double>(lanes[0]);
    }
    // The sum is at least 1; dividing each takes longer than its exp.
    const V folded = hn::Set(d, static_cast<T>(Kind == SoftmaxKind::Log ? std::log(sum) : 1 / sum));
    vectors(d, 0, n, [&](int64_t at, auto mask, auto whole) {
        __builtin_prefetch(in + n + at);  // most often the next row, and other pages, at which the processor's own prefetching ends
        if constexpr (Kind == SoftmaxKind::Log) {
            store<streamed>(d, hn::Sub(hn::Sub(input(at, mask, whole), shift), folded), mask, whole, out + at);
        } else {
            store<streamed>(d, hn::Mul(load(d, mask, whole, work + at), folded), mask, whole, out + at);
        }
    });
}
template <class T, SoftmaxKind Kind>
void softmax_row(const SoftmaxRow& row) {
    if (row.streamed) return softmax_row<T, Kind, true>(row);
    softmax_row<T, Kind, false>(row);
}

template <class T, SoftmaxKind Kind>
void softmax_columns(const SoftmaxColumns& call) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const int64_t columns = call.columns, n = call.n;
    auto* totals = static_cast<double*>(call.work);
    auto* largest = reinterpret_cast<T*>(totals + columns);
    T* lanes = largest + columns;
    const auto input = [&](int64_t i, int64_t c, auto mask, auto whole) {
        const V x = load(d, mask, whole, static_cast<const T*>(call.in) + i * call.in_pitch + c);
        return Kind == SoftmaxKind::OfNegative ? hn::Neg(x) : x;
    };
    const auto output = [&](int64_t i, int64_t c) { return static_cast<T*>(call.out) + i * call.out_pitch + c; };

    std::fill(largest, largest + columns, -std::numeric_limits<T>::infinity());
    for (int64_t i = 0; i < n; ++i) {
        vectors(d, 0, columns, [&](int64_t c, auto mask, auto whole) {
            store(d, hn::Max(load(d, mask, whole, largest + c), input(i, c, mask, whole)), mask, whole, largest + c);
        });
    }
    std::fill(totals, totals + columns, 0.0);
    for (int64_t block = 0; block < n; block += kSumBlock) {
        std::fill(lanes, lanes + kSumLanes * columns, T(0));
        for (int64_t i = block; i < std::min(n, block + kSumBlock); ++i) {
            T* lane = lanes + i % kSumLanes * columns;
            vectors(d, 0, columns, [&](int64_t c, auto mask, auto whole) {
                const V e = exp(d, hn::Sub(input(i, c, mask, whole), load(d, mask, whole, largest + c)));
                if constexpr (Kind != SoftmaxKind::Log) store(d, e, mask, whole, output(i, c));
                store(d, hn::Add(load(d, mask, whole, lane + c), e), mask, whole, lane + c);
            });
        }
        for (int64_t half = kSumLanes / 2; half >= 1; half /= 2) {
            for (int64_t k = 0; k < half * columns; ++k) lanes[k] += lanes[half * columns + k];
        }
        for (int64_t c = 0; c < columns; ++c) totals[c] += static_cast<double>(lanes[c]);
    }
    T* part = lanes;  // or the logarithm of the total
    for (int64_t c = 0; c < columns; ++c) part[c] = static_cast<T>(Kind == SoftmaxKind::Log ? std::log(totals[c]) : 1 / totals[c]);
    for (int64_t i = 0; i < n; ++i) {
        vectors(d, 0, columns, [&](int64_t c, auto mask, auto whole) {
            T* to = output(i, c);
            const V by = load(d, mask, whole, part + c);
            if constexpr (Kind == SoftmaxKind::Log) {
                store(d, hn::Sub(hn::Sub(input(i, c, mask, whole), load(d, mask, whole, largest + c)), by), mask, whole, to);
            } else {
                store(d, hn::Mul(load(d, mask, whole, to), by), mask, whole, to);
            }
        });
    }
}

template <class T, SoftmaxKind Kind>
SoftmaxFns fns() {
    return {&softmax_row<T, Kind>, &softmax_columns<T, Kind>};
}
template <class T>
SoftmaxFns softmax_of(SoftmaxKind kind) {
    return kind == SoftmaxKind::Plain ? fns<T, SoftmaxKind::Plain>()
           : kind == SoftmaxKind::Log ? fns<T, SoftmaxKind::Log>()
                                      : fns<T, SoftmaxKind::OfNegative>();
}
SoftmaxFns find_softmax(SoftmaxKind kind, DType lane) {
    return lane == DType::Float32 ? softmax_of<float>(kind) : softmax_of<double>(kind);
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_softmax);

constexpr int64_t kRowTile = 64 * 1024;      // elements
constexpr int64_t kColumnTile = 256 * 1024;  // the same where columns are wanted wide: they are read from afar
constexpr int64_t kRowsTogether = 32;        // of a tile: neighbours across the rows share cache lines
constexpr int64_t kFewestColumns = 16, kMostColumns = 512;

/// One softmax, cut into runs of neighbouring rows or columns.
class Normalisation {
public:
    Normalisation(const KernelCall& call, SoftmaxKind kind);
    void run();

private:
    void rows(const char* from, char* to, int64_t count) const;
    void columns(const char* from, char* to, int64_t count) const;

    const KernelCall& call_;
    const View &in_, &out_;
    const DType dtype_, lane_;
    const int64_t bytes_, lane_bytes_;
    const SoftmaxFns fns_;
    const ConvertFn load_, store_;
    Dims shape_, strides_in_, strides_out_;                     // without the dimension that sums to one,
    int64_t extent_ = 1, step_in_ = 1, step_out_ = 1;           // which is here;
    int64_t run_ = 1, next_in_ = 0, next_out_ = 0, above_ = 1;  // the last of shape_, and all above it
    bool as_columns_ = false, direct_ = false, streamed_ = false;
};

Normalisation::Normalisation(const KernelCall& call, SoftmaxKind kind)
    : call_(call),
      in_(call.inputs[0]),
      out_(call.outputs[0]),
      dtype_(dtype_of(in_)),
      lane_(lane_of(dtype_)),
      bytes_(size_of(dtype_)),
      lane_bytes_(size_of(lane_)),
      fns_(HWY_DYNAMIC_DISPATCH(find_softmax)(kind, lane_)),
      load_(find_convert(dtype_, lane_)),
      store_(find_convert(lane_, dtype_)),
      shape_(shape_of(out_)),
      strides_in_(strides_of(in_)),
      strides_out_(strides_of(out_)) {
    if (in_.rank > 0) {
        const int64_t given = call.attributes->integer(attribute::softmax_dim);
        const auto dim = static_cast<int>(given < 0 ? given + in_.rank : given);
        extent_ = shape_[dim], step_in_ = strides_in_[dim], step_out_ = strides_out_[dim];
        shape_.erase(dim), strides_in_.erase(dim), strides_out_.erase(dim);
    }
    if (const int last = shape_.rank() - 1; last >= 0) {
        run_ = shape_[last], next_in_ = strides_in_[last], next_out_ = strides_out_[last];
        shape_.erase(last), strides_in_.erase(last), strides_out_.erase(last);
    }
    above_ = numel(shape_);
    as_columns_ = step_out_ != 1 && next_out_ == 1 && run_ >= kFewestColumns && std::abs(next_in_) <= std::abs(step_in_);
    direct_ = dtype_ == lane_ && (as_columns_ ? next_in_ == 1 : step_in_ == 1 && step_out_ == 1);
    // A row is put together in the second-level cache, if it fits there.
    constexpr int64_t kLongest = int64_t{512} << 10;  // bytes
    const auto aligned = [&](int64_t elements) { return elements * bytes_ % static_cast<int64_t>(kMemoryAlignment) == 0; };
    bool rows_aligned = reinterpret_cast<uintptr_t>(out_.data) % kMemoryAlignment == 0 && aligned(next_out_);
    for (int d = 0; d < shape_.rank(); ++d) rows_aligned &= aligned(strides_out_[d]);
    streamed_ = direct_ && !as_columns_ && extent_ * bytes_ <= kLongest && rows_aligned && run_ * above_ * extent_ * bytes_ >= kStreamedBytes;
}

void Normalisation::rows(const char* from, char* to, int64_t count) const {
    if (direct_) {
        const Scratch work(static_cast<size_t>(streamed_ ? extent_ * lane_bytes_ : 1));
        for (int64_t r = 0; r < count; ++r) {
            char* const out = to + r * next_out_ * bytes_;
            fns_.row({from + r * next_in_ * bytes_, out, streamed_ ? work.as<char>() : out, extent_, streamed_});
        }
        if (streamed_) hwy::FlushStream();
        return;
    }
    const int64_t pitch = extent_ + kRowsTogether;  // seldom a power of two
    const Scratch tile(static_cast<size_t>(count * pitch * lane_bytes_));
    const BoxDim gathered[] = {{count, next_in_, pitch}, {extent_, step_in_, 1}}, scattered[] = {{count, pitch, next_out_}, {extent_, 1, step_out_}};
    move_box(gathered, from, bytes_, tile.as<void>(), lane_bytes_, load_);
    for (int64_t r = 0; r < count; ++r) {
        char* const row = tile.as<char>() + r * pitch * lane_bytes_;
        fns_.row({row, row, row, extent_, false});
    }
    move_box(scattered, tile.as<void>(), lane_bytes_, to, bytes_, store_);
}

void Normalisation::columns(const char* from, char* to, int64_t count) const {
    const Scratch work(static_cast<size_t>(count * kColumnWork));
    if (direct_) return fns_.columns({from, step_in_, to, step_out_, extent_, count, work.as<void>()});
    const Scratch tile(static_cast<size_t>(count * extent_ * lane_bytes_));
    const BoxDim gathered[] = {{extent_, step_in_, count}, {count, next_in_, 1}}, scattered[] = {{extent_, count, step_out_}, {count, 1, next_out_}};
    move_box(gathered, from, bytes_, tile.as<void>(), lane_bytes_, load_);
    fns_.columns({tile.as<void>(), count, tile.as<void>(), count, extent_, count, work.as<void>()});
    move_box(scattered, tile.as<void>(), lane_bytes_, to, bytes_, store_);
}

void Normalisation::run() {
    const int64_t together = as_columns_ ? std::clamp(kColumnTile / extent_, kFewestColumns, kMostColumns)
                             : direct_   ? std::max<int64_t>(1, kPiece / 4 / extent_)  // exp is dear
                                         : std::clamp<int64_t>(kRowTile / extent_, 1, kRowsTogether);
    const int64_t runs = (run_ + together - 1) / together, all = above_ * runs;
    const int64_t per_piece = std::max<int64_t>(1, kPiece / 4 / (extent_ * std::min(run_, together)));
    parallel_for(call_, (all + per_piece - 1) / per_piece, [&](int64_t piece) {
        for (int64_t k = piece * per_piece; k < std::min(all, (piece + 1) * per_piece); ++k) {
            const int64_t first = k % runs * together, count = std::min(together, run_ - first);
            int64_t rest = k / runs, at_in = first * next_in_, at_out = first * next_out_;
            for (int d = shape_.rank() - 1; d >= 0; --d) {
                at_in += rest % shape_[d] * strides_in_[d];
                at_out += rest % shape_[d] * strides_out_[d];
                rest /= shape_[d];
            }
            const char* from = static_cast<const char*>(in_.data) + at_in * bytes_;
            char* to = static_cast<char*>(out_.data) + at_out * bytes_;
            if (as_columns_) {
                columns(from, to, count);
            } else {
                rows(from, to, count);
            }
        }
    });
}

template <SoftmaxKind Kind>
void softmax(const KernelCall& call) {
    Normalisation(call, Kind).run();
}

class SoftmaxPart final : public RowPart {
public:
    SoftmaxPart(SoftmaxKind kind, DType lane, int64_t row) : RowPart(lane, lane), run_row_(HWY_DYNAMIC_DISPATCH(find_softmax)(kind, lane).row), row_(row) {}
    void run(const void*, const void* x, int64_t, int64_t n, void* to) const override {
        const int64_t bytes = row_ * size_of(in);
        for (int64_t r = 0; r < n / row_; ++r) {
            char* const out = static_cast<char*>(to) + r * bytes;
            run_row_({static_cast<const char*>(x) + r * bytes, out, out, row_, false});
        }
    }

private:
    void (*const run_row_)(const SoftmaxRow&);
    const int64_t row_;
};

}  // namespace

std::unique_ptr<const RowPart> find_softmax_part(const FusedPart& part, const View& x, int64_t row) {
    const DType lane = lane_of(dtype_of(x));
    switch (static_cast<OpCode>(part.op)) {
        case OpCode::Softmax: return std::make_unique<SoftmaxPart>(SoftmaxKind::Plain, lane, row);
        case OpCode::LogSoftmax: return std::make_unique<SoftmaxPart>(SoftmaxKind::Log, lane, row);
        case OpCode::Softmin: return std::make_unique<SoftmaxPart>(SoftmaxKind::OfNegative, lane, row);
        default: return nullptr;
    }
}

KernelFn kernel_softmax(DType t) {
    return computes(t) ? &kernel<softmax<SoftmaxKind::Plain>> : nullptr;
}
KernelFn kernel_log_softmax(DType t) {
    return computes(t) ? &kernel<softmax<SoftmaxKind::Log>> : nullptr;
}
KernelFn kernel_softmin(DType t) {
    return computes(t) ? &kernel<softmax<SoftmaxKind::OfNegative>> : nullptr;
}

}  // namespace clikart::cpu
#endif
