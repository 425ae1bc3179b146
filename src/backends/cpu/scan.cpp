// cumsum, cumprod, cummax, cummin, logcumsumexp.
//
// Elements are taken strictly one after the other, floats into a double, so that no layout makes a difference; speed comes
// from rows or columns in step.  A long extent is cut into blocks of kScanBlock, whose totals are found first: a block then
// starts from the totals before it.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/scan.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "backends/cpu/box.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/widening.h"

#ifndef CLIKART_CPU_SCAN_ONCE
#define CLIKART_CPU_SCAN_ONCE
namespace clikart::cpu {

inline constexpr int64_t kScanBlock = 16 * 1024;
inline constexpr int kScansInStep = 4;  // their pointers fit the registers

enum class Scan { Sum, Product, Largest, Smallest, LogSumExp };

/// n elements of each of `count` scans; strides are in elements, between elements and between scans.
struct ScanCall {
    const void* in;
    int64_t in_step, in_pitch;
    int64_t n, count;
    int64_t first, first_pitch;  // the position of each scan's first element
    void* states;                // what each scan has come to; carried on
    void* out;                   // may be `in`
    int64_t out_step, out_pitch;
    int64_t* indices;  // of scans that have them
    int64_t index_step, index_pitch;
};

struct ScanFns {
    int64_t state_bytes;
    bool has_indices;
    void (*start)(void* states, int64_t n);
    void (*totals)(const ScanCall&);   // states only
    void (*rows)(const ScanCall&);     // in_step and out_step are 1
    void (*columns)(const ScanCall&);  // in_pitch and out_pitch are 1
    /// Before each of n blocks' totals, that lie `step` states apart, what the blocks before it come to.
    void (*carry)(void* states, int64_t n, int64_t step);
};

template <class T>
using Accumulator = std::conditional_t<std::is_floating_point_v<T>, double, T>;

template <class T>
struct SumScan {
    using Value = T;
    using State = Accumulator<T>;
    static constexpr bool has_indices = false;
    static State start() { return 0; }
    static State next(State state, T x, int64_t) { return state + static_cast<State>(x); }
    static State both(State before, State after) { return before + after; }
    static T value(State state) { return static_cast<T>(state); }
};
template <class T>
struct ProductScan {
    using Value = T;
    using State = Accumulator<T>;
    static constexpr bool has_indices = false;
    static State start() { return 1; }
    static State next(State state, T x, int64_t) { return state * static_cast<State>(x); }
    static State both(State before, State after) { return before * after; }
    static T value(State state) { return static_cast<T>(state); }
};
/// As torch: the latest of equals, and once there is a NaN, the latest NaN.
template <class T, bool Largest>
struct ExtremeScan {
    using Value = T;
    struct State {
        T value;
        int64_t index;  // -1: nothing yet
    };
    static constexpr bool has_indices = true;
    static State start() { return {T(0), -1}; }
    static State next(State state, T x, int64_t i) {
        const bool as_good = Largest ? x >= state.value : x <= state.value;
        return state.index < 0 || as_good || x != x ? State{x, i} : state;
    }
    static State both(State before, State after) { return after.index < 0 ? before : next(before, after.value, after.index); }
    static T value(State state) { return state.value; }
};
template <class T>
struct LogSumExpScan {
    using Value = T;
    using State = double;
    static constexpr bool has_indices = false;
    static State start() { return -std::numeric_limits<double>::infinity(); }
    static State both(State a, State b) {
        const double high = a > b || a != a ? a : b, low = a > b || a != a ? b : a;
        if (high != high) return high;
        return high == low && std::isinf(high) ? high : high + std::log1p(std::exp(low - high));
    }
    static State next(State state, T x, int64_t) { return both(state, static_cast<double>(x)); }
    static T value(State state) { return static_cast<T>(state); }
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

/// Some scans in step along rows.
template <class Op, int Rows, bool Store>
void scan_rows(const ScanCall& call, int64_t row) {
    using T = typename Op::Value;
    const T* in[Rows];
    T* out[Rows];
    int64_t* indices[Rows];
    typename Op::State state[Rows];
    auto* states = static_cast<typename Op::State*>(call.states) + row;
    for (int r = 0; r < Rows; ++r) {
        in[r] = static_cast<const T*>(call.in) + (row + r) * call.in_pitch;
        if constexpr (Store) {
            out[r] = static_cast<T*>(call.out) + (row + r) * call.out_pitch;
            indices[r] = Op::has_indices ? call.indices + (row + r) * call.index_pitch : nullptr;
        }
        state[r] = states[r];
    }
    const int64_t n = call.n, index_step = call.index_step, first = call.first + row * call.first_pitch, pitch = call.first_pitch;
    for (int64_t i = 0; i < n; ++i) {
        for (int r = 0; r < Rows; ++r) {
            state[r] = Op::next(state[r], in[r][i], first + r * pitch + i);
            if constexpr (Store) {
                out[r][i] = Op::value(state[r]);
                if constexpr (Op::has_indices) indices[r][i * index_step] = state[r].index;
            }
        }
    }
    for (int r = 0; r < Rows; ++r) states[r] = state[r];
}

template <class Op, bool Store>
void rows(const ScanCall& call) {
    int64_t row = 0;
    for (; row + kScansInStep <= call.count; row += kScansInStep) scan_rows<Op, kScansInStep, Store>(call, row);
    for (; row < call.count; ++row) scan_rows<Op, 1, Store>(call, row);
}

template <class Op, bool Store>
void columns(const ScanCall& call) {
    using T = typename Op::Value;
    auto* states = static_cast<typename Op::State*>(call.states);
    const int64_t count = call.count, index_pitch = call.index_pitch;
    for (int64_t i = 0; i < call.n; ++i) {
        const T* in = static_cast<const T*>(call.in) + i * call.in_step;
        const int64_t position = call.first + i;
        T* out = static_cast<T*>(call.out) + i * call.out_step;
        int64_t* indices = Op::has_indices && Store ? call.indices + i * call.index_step : nullptr;
#pragma GCC ivdep
        for (int64_t c = 0; c < count; ++c) {
            const auto state = Op::next(states[c], in[c], position);
            states[c] = state;
            if constexpr (Store) {
                out[c] = Op::value(state);
                if constexpr (Op::has_indices) indices[c * index_pitch] = state.index;
            }
        }
    }
}

template <class Op>
void totals(const ScanCall& call) {
    if (call.in_step == 1) {
        rows<Op, false>(call);
    } else {
        columns<Op, false>(call);
    }
}

template <class Op>
void start(void* states, int64_t n) {
    std::fill_n(static_cast<typename Op::State*>(states), n, Op::start());
}

template <class Op>
void carry(void* bytes, int64_t n, int64_t step) {
    auto* states = static_cast<typename Op::State*>(bytes);
    auto before = Op::start();
    for (int64_t i = 0; i < n; ++i) {
        const auto total = states[i * step];
        states[i * step] = before;
        before = Op::both(before, total);
    }
}

template <class Op>
ScanFns fns() {
    return {sizeof(typename Op::State), Op::has_indices, &start<Op>, &totals<Op>, &rows<Op, true>, &columns<Op, true>, &carry<Op>};
}

template <template <class> class Op>
ScanFns of_numbers(DType lane) {
    switch (lane) {
        case DType::Float32: return fns<Op<float>>();
        case DType::Float64: return fns<Op<double>>();
        default: return fns<Op<int64_t>>();
    }
}
template <bool Largest>
ScanFns of_ordered(DType lane) {
    switch (lane) {
        case DType::Float32: return fns<ExtremeScan<float, Largest>>();
        case DType::Float64: return fns<ExtremeScan<double, Largest>>();
        case DType::Int32: return fns<ExtremeScan<int32_t, Largest>>();
        case DType::Int64: return fns<ExtremeScan<int64_t, Largest>>();
        default: return fns<ExtremeScan<uint64_t, Largest>>();
    }
}

ScanFns find_scan(Scan scan, DType lane) {
    switch (scan) {
        case Scan::Sum: return of_numbers<SumScan>(lane);
        case Scan::Product: return of_numbers<ProductScan>(lane);
        case Scan::Largest: return of_ordered<true>(lane);
        case Scan::Smallest: return of_ordered<false>(lane);
        default: return lane == DType::Float32 ? fns<LogSumExpScan<float>>() : fns<LogSumExpScan<double>>();
    }
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_scan);

constexpr int64_t kTileElements = 16 * 1024;
constexpr int64_t kStrip = 512;  // columns in step

/// One scan of a tensor, cut into tasks of some neighbouring rows or columns and some blocks.
class Scanning {
public:
    Scanning(const KernelCall& call, int dim_position, Scan scan, DType lane);
    void run();

private:
    struct KeptDim {
        int64_t size, in, out;
    };
    void blocks(int64_t group, int64_t begin_block, int64_t end_block, bool store);
    void piece(const char* in, char* out, int64_t out_offset, int64_t begin, int64_t n, int64_t count, int64_t in_pitch, int64_t out_pitch, int64_t first_pitch,
               void* states, bool store);

    const KernelCall& call_;
    const View &in_, &out_;
    const DType lane_;
    const ScanFns fns_;
    const ConvertFn load_, store_;
    const int64_t in_bytes_, out_bytes_, lane_bytes_;
    KeptDim kept_[kMaxRank];
    int n_kept_ = 0;
    KeptDim first_{1, 0, 0};
    int64_t extent_ = 1, in_step_ = 1, out_step_ = 1, outer_ = 1, blocks_ = 1, width_ = 1;
    bool as_columns_ = false;
    char* states_ = nullptr;
    int64_t step_block_ = 0, step_scan_ = 0;
};

Scanning::Scanning(const KernelCall& call, int dim_position, Scan scan, DType lane)
    : call_(call),
      in_(call.inputs[0]),
      out_(call.outputs[0]),
      lane_(lane),
      fns_(HWY_DYNAMIC_DISPATCH(find_scan)(scan, lane)),
      load_(find_widening(dtype_of(in_), lane)),
      store_(find_convert(lane, dtype_of(out_))),
      in_bytes_(size_of(dtype_of(in_))),
      out_bytes_(size_of(dtype_of(out_))),
      lane_bytes_(size_of(lane)) {
    int64_t dim = call.attributes->integer(dim_position);
    if (dim < 0) dim += in_.rank;
    for (int d = 0; d < in_.rank; ++d) {
        const int64_t size = in_.shape[d];
        if (d == dim) {
            extent_ = size, in_step_ = in_.strides[d], out_step_ = out_.strides[d];
        } else if (size != 1) {
            if (n_kept_ > 0 && kept_[n_kept_ - 1].in == size * in_.strides[d] && kept_[n_kept_ - 1].out == size * out_.strides[d]) {
                kept_[n_kept_ - 1] = {kept_[n_kept_ - 1].size * size, in_.strides[d], out_.strides[d]};
            } else {
                kept_[n_kept_++] = {size, in_.strides[d], out_.strides[d]};
            }
        }
    }
    if (n_kept_ > 0) first_ = kept_[--n_kept_];
    for (int d = 0; d < n_kept_; ++d) outer_ *= kept_[d].size;
    blocks_ = ceil_div(extent_, kScanBlock);
    as_columns_ = first_.size > 1 && first_.out == 1;  // results are contiguous, so that they lie either way
    width_ = std::min(first_.size, as_columns_ ? kStrip : ceil_div(std::max<int64_t>(kScansInStep, kPiece / extent_), kScansInStep) * kScansInStep);
    step_block_ = fns_.state_bytes * (as_columns_ ? outer_ * first_.size : 1);
    step_scan_ = fns_.state_bytes * (as_columns_ ? 1 : blocks_);
}

/// n elements, from position `begin` on, of `count` scans that follow each other.
void Scanning::piece(const char* in, char* out, int64_t out_offset, int64_t begin, int64_t n, int64_t count, int64_t in_pitch, int64_t out_pitch,
                     int64_t first_pitch, void* states, bool store) {
    const bool in_lies = dtype_of(in_) == lane_ && (as_columns_ ? in_pitch == 1 : in_step_ == 1);
    const bool out_lies = dtype_of(out_) == lane_ && (as_columns_ ? out_pitch == 1 : out_step_ == 1);
    int64_t* const indices = fns_.has_indices ? static_cast<int64_t*>(call_.outputs[1].data) + out_offset : nullptr;
    const auto scan = [&](const ScanCall& part) { (!store ? fns_.totals : as_columns_ ? fns_.columns : fns_.rows)(part); };
    if (in_lies && (out_lies || !store)) {
        return scan({in, in_step_, in_pitch, n, count, begin, first_pitch, states, out, out_step_, out_pitch, indices, out_step_, out_pitch});
    }
    const int64_t length = std::clamp(kTileElements / count, int64_t{1}, n), pitch = as_columns_ ? 1 : length, step = as_columns_ ? count : 1;
    const Scratch tile(static_cast<size_t>(length * count * lane_bytes_));
    for (int64_t at = 0; at < n; at += length) {
        const int64_t m = std::min(length, n - at);
        const BoxDim from[] = {{count, in_pitch, pitch}, {m, in_step_, step}}, to[] = {{count, pitch, out_pitch}, {m, step, out_step_}};
        move_box(from, in + at * in_step_ * in_bytes_, in_bytes_, tile.as<void>(), lane_bytes_, load_);
        scan({tile.as<void>(), step, pitch, m, count, begin + at, first_pitch, states, tile.as<void>(), step, pitch,
              indices ? indices + at * out_step_ : nullptr, out_step_, out_pitch});
        if (store) move_box(to, tile.as<void>(), lane_bytes_, out + at * out_step_ * out_bytes_, out_bytes_, store_);
    }
}

void Scanning::blocks(int64_t group, int64_t begin_block, int64_t end_block, bool store) {
    const int64_t groups = ceil_div(first_.size, width_), first = group % groups * width_, count = std::min(width_, first_.size - first),
                  outer = group / groups;
    int64_t in_offset = first * first_.in, out_offset = first * first_.out, rest = outer;
    for (int d = n_kept_ - 1; d >= 0; --d) {
        in_offset += rest % kept_[d].size * kept_[d].in;
        out_offset += rest % kept_[d].size * kept_[d].out;
        rest /= kept_[d].size;
    }
    const auto run = [&](int64_t scan, int64_t n_scans, int64_t begin, int64_t n, int64_t in_pitch, int64_t out_pitch, int64_t first_pitch, void* states) {
        const int64_t in_at = in_offset + scan * first_.in + begin * in_step_, out_at = out_offset + scan * first_.out + begin * out_step_;
        piece(static_cast<const char*>(in_.data) + in_at * in_bytes_, static_cast<char*>(out_.data) + out_at * out_bytes_, out_at, begin, n, n_scans, in_pitch,
              out_pitch, first_pitch, states, store);
    };
    if (blocks_ == 1) {
        const Scratch states(static_cast<size_t>(count * fns_.state_bytes));
        fns_.start(states.as<void>(), count);
        return run(0, count, 0, extent_, first_.in, first_.out, 0, states.as<void>());
    }
    char* states = states_ + (outer * first_.size + first) * step_scan_ + begin_block * step_block_;
    if (as_columns_) {
        for (int64_t b = begin_block; b < end_block; ++b, states += step_block_) {
            if (!store) fns_.start(states, count);
            run(0, count, b * kScanBlock, std::min(kScanBlock, extent_ - b * kScanBlock), first_.in, first_.out, 0, states);
        }
        return;
    }
    // A row's whole blocks are rows of their own.
    const int64_t whole = std::min(end_block, extent_ / kScanBlock) - begin_block, begin = begin_block * kScanBlock;
    for (int64_t s = 0; s < count; ++s, states += step_scan_) {
        if (!store) fns_.start(states, end_block - begin_block);
        if (whole > 0) run(s, whole, begin, kScanBlock, kScanBlock * in_step_, kScanBlock * out_step_, kScanBlock, states);
        if (begin_block + whole < end_block) {
            run(s, 1, begin + whole * kScanBlock, extent_ - begin - whole * kScanBlock, 0, 0, 0, states + whole * step_block_);
        }
    }
}

void Scanning::run() {
    const int64_t groups = outer_ * ceil_div(first_.size, width_);
    if (blocks_ == 1) return parallel_for(call_, groups, [&](int64_t group) { blocks(group, 0, 1, true); });
    const int64_t scans = outer_ * first_.size, chunk = as_columns_ ? 1 : kScansInStep, chunks = ceil_div(blocks_, chunk);
    const Scratch states(static_cast<size_t>(scans * blocks_ * fns_.state_bytes));
    states_ = states.as<char>();
    const auto all = [&](bool store) {
        parallel_for(call_, groups * chunks,
                     [&](int64_t task) { blocks(task / chunks, task % chunks * chunk, std::min(blocks_, (task % chunks + 1) * chunk), store); });
    };
    all(false);
    for (int64_t s = 0; s < scans; ++s) fns_.carry(states_ + s * step_scan_, blocks_, step_block_ / fns_.state_bytes);
    all(true);
}

void scan_to_sum_lanes(const KernelCall& call, Scan scan) {
    Scanning(call, attribute::cumsum_dim, scan, sum_lane(static_cast<DType>(call.compute))).run();
}
void cumsum(const KernelCall& call) {
    scan_to_sum_lanes(call, Scan::Sum);
}
void cumprod(const KernelCall& call) {
    scan_to_sum_lanes(call, Scan::Product);
}
void logcumsumexp(const KernelCall& call) {
    scan_to_sum_lanes(call, Scan::LogSumExp);
}
template <bool Largest>
void cumulative_extreme(const KernelCall& call) {
    Scanning(call, attribute::cummax_dim, Largest ? Scan::Largest : Scan::Smallest, order_lane(dtype_of(call.inputs[0]))).run();
}

}  // namespace

KernelFn kernel_cumsum(DType t) {
    return if_computed(t, &kernel<cumsum>);
}
KernelFn kernel_cumprod(DType t) {
    return if_computed(t, &kernel<cumprod>);
}
KernelFn kernel_cummax(DType t) {
    return if_computed(t, &kernel<cumulative_extreme<true>>);
}
KernelFn kernel_cummin(DType t) {
    return if_computed(t, &kernel<cumulative_extreme<false>>);
}
KernelFn kernel_logcumsumexp(DType t) {
    return computes(t) ? &kernel<logcumsumexp> : nullptr;
}

}  // namespace clikart::cpu
#endif
