#include "backends/cpu/reduce_blocks.h"

#include "backends/cpu/box.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/widening.h"

namespace clikart::cpu {
namespace {

constexpr int64_t kDirectElements = 128 * 1024;   // of a piece that is read where it lies, in order
constexpr int64_t kTileElements = 32 * 1024;      // of one tile: it stays in the second-level cache
constexpr int64_t kFarTileElements = 256 * 1024;  // of one that is read across memory,
constexpr int64_t kNeighbours = 64;               // where so many elements should be read together
constexpr int64_t kColumnBytes = 4096;            // of a strip of columns that is read where it lies
constexpr int64_t kMostColumns = 1024;
constexpr int64_t kFewBlocks = 16;  // of a row in one task

struct KeptDim {
    int64_t size, in, out[2];
};
struct ReducedDim {
    int64_t size, in;
};

/// The partial results of `together` neighbours, block after block in pairs of neighbours.
void fold_blocks(const BlockReducer& reducer, char* partial, int64_t step_block, int64_t blocks, int64_t together) {
    const auto bytes = static_cast<size_t>(together * reducer.partial_bytes);
    for (int64_t left = blocks; left > 1; left = ceil_div(left, 2)) {
        for (int64_t i = 0; i < left / 2; ++i) {
            char* to = partial + i * step_block;
            const char* a = partial + 2 * i * step_block;
            if (i > 0) std::memcpy(to, a, bytes);
            reducer.combine(to, a + step_block, together);
        }
        if (left % 2) std::memcpy(partial + left / 2 * step_block, partial + (left - 1) * step_block, bytes);
    }
}

/// One reduction, cut into tasks.  Results are numbered in the order of `kept_`, which is by strides and not the outputs'.
class Reduction {
public:
    Reduction(const KernelCall& call, const BlockReducer& reducer, const bool (&reduced)[kMaxRank]);
    void run();

private:
    void add_kept(const KeptDim& dim);
    void add_reduced(const ReducedDim& dim);
    void plan();
    void task(int64_t group, int64_t chunk);
    void rows(int64_t n_second, int64_t n_first, const char* base, int64_t begin, int64_t end, char* partial);
    void columns(int64_t n_second, int64_t n_first, const char* base, int64_t begin, int64_t end, char* partial);
    void gather(const char* base, int64_t n_second, int64_t n_first, int64_t begin, int64_t end, char* tile, int64_t result_pitch, int64_t element_pitch) const;
    void fold(char* partial, int64_t step_block, int64_t together) const;
    void fold_results(int64_t outer, int64_t second, int64_t first, int64_t n_first) const;
    void finish(const char* partial, int64_t outer, int64_t second, int64_t first, int64_t n) const;
    int64_t input_offset(int64_t outer) const;
    int64_t reduced_offset(int64_t position) const;
    BlockCall block_call(const void* in, int64_t row_stride, int64_t n, int64_t count, int64_t first, int64_t first_step, void* partial, void* work) const {
        return {in, row_stride, n, count, first, first_step, partial, work, reducer_.parameter};
    }
    int64_t number(int64_t outer, int64_t second, int64_t first) const { return (outer * second_.size + second) * first_.size + first; }

    const KernelCall& call_;
    const BlockReducer& reducer_;
    const View& in_;
    const int64_t in_bytes_, lane_bytes_;
    KeptDim kept_[kMaxRank];
    ReducedDim reduced_[kMaxRank];
    int n_kept_ = 0, n_reduced_ = 0;
    KeptDim first_{1, 0, {0, 0}}, second_{1, 0, {0, 0}};  // the two innermost kept dimensions; kept_ holds the others
    ReducedDim inner_{1, 1};                              // the innermost reduced dimension
    int64_t extent_ = 1, results_ = 1, outer_ = 1, blocks_ = 1;
    bool as_columns_ = false, direct_ = false;
    bool one_after_another_ = true;               // the results of a group, in the outputs too
    int64_t group_first_ = 1, group_second_ = 1;  // results of a group along the two dimensions
    int64_t chunk_ = 1;                           // blocks of a task
    int64_t step_block_ = 0, step_result_ = 0;    // between partial results that are kept
    ConvertFn load_;
    char* partial_ = nullptr;
};

Reduction::Reduction(const KernelCall& call, const BlockReducer& reducer, const bool (&reduced)[kMaxRank])
    : call_(call), reducer_(reducer), in_(call.inputs[0]), in_bytes_(size_of(dtype_of(in_))), lane_bytes_(size_of(reducer.lane)) {
    const bool keepdim = call.outputs[0].rank == in_.rank;
    KeptDim kept[kMaxRank];
    ReducedDim taken[kMaxRank];
    int n = 0, n_taken = 0;
    for (int d = 0, o = 0; d < in_.rank; ++d) {
        const int64_t size = in_.shape[d];
        if (reduced[d]) {
            extent_ *= size;
            if (size != 1) taken[n_taken++] = {size, in_.strides[d]};
        } else {
            results_ *= size;
            if (size != 1) kept[n++] = {size, in_.strides[d], {call.outputs[0].strides[o], call.n_outputs > 1 ? call.outputs[1].strides[o] : 0}};
        }
        o += keepdim || !reduced[d];
    }
    // What lies closest together innermost; the order of results makes no difference.
    std::stable_sort(kept, kept + n, [](const KeptDim& a, const KeptDim& b) { return std::abs(a.in) > std::abs(b.in); });
    for (int d = 0; d < n; ++d) {
        if (extent_ == 0) kept[d].in = 0;  // there is no memory to point into
        add_kept(kept[d]);
    }
    if (reducer.any_order) std::stable_sort(taken, taken + n_taken, [](const ReducedDim& a, const ReducedDim& b) { return std::abs(a.in) > std::abs(b.in); });
    for (int d = 0; d < n_taken; ++d) add_reduced(taken[d]);
    if (n_kept_ > 0) first_ = kept_[--n_kept_];
    if (n_kept_ > 0) second_ = kept_[--n_kept_];
    for (int d = 0; d < n_kept_; ++d) outer_ *= kept_[d].size;
    for (const int k : {0, 1}) one_after_another_ &= second_.size == 1 || second_.out[k] == first_.out[k] * first_.size;
    if (n_reduced_ > 0) inner_ = reduced_[n_reduced_ - 1];
    blocks_ = std::max<int64_t>(1, ceil_div(extent_, kReduceBlock));
    load_ = reducer.counts_nonzero ? find_nonzero(dtype_of(in_)) : find_widening(dtype_of(in_), reducer.lane);
    plan();
}

void Reduction::add_kept(const KeptDim& dim) {
    if (n_kept_ > 0) {
        KeptDim& last = kept_[n_kept_ - 1];
        if (last.in == dim.in * dim.size && last.out[0] == dim.out[0] * dim.size && last.out[1] == dim.out[1] * dim.size) {
            last = {last.size * dim.size, dim.in, {dim.out[0], dim.out[1]}};
            return;
        }
    }
    kept_[n_kept_++] = dim;
}

void Reduction::add_reduced(const ReducedDim& dim) {
    if (n_reduced_ > 0 && reduced_[n_reduced_ - 1].in == dim.in * dim.size) {
        reduced_[n_reduced_ - 1] = {reduced_[n_reduced_ - 1].size * dim.size, dim.in};
    } else {
        reduced_[n_reduced_++] = dim;
    }
}

/// Rows or columns, from where they lie or through tiles, and how many at a time.
void Reduction::plan() {
    const bool same_lane = !reducer_.counts_nonzero && (dtype_of(in_) == reducer_.lane || (dtype_of(in_) == DType::UInt64 && reducer_.lane == DType::Int64));
    const bool one_run = n_reduced_ <= 1;
    const int64_t block = std::clamp<int64_t>(extent_, 1, kReduceBlock);
    const bool wide_enough = first_.size >= (reducer_.wants_wide_columns ? kReduceLanes : 2);
    as_columns_ = first_.size > 1 && (extent_ < kReduceLanes || (wide_enough && first_.in != 0 && std::abs(first_.in) < std::abs(inner_.in)));
    int64_t width;
    if (as_columns_) {
        // Wide strips read memory best; but there should be several of them.
        const int64_t strip = std::clamp(ceil_div(first_.size, 8 * kReduceLanes) * kReduceLanes, kColumnBytes / 4 / lane_bytes_, kColumnBytes / lane_bytes_);
        direct_ = same_lane && one_run && first_.in == 1 && (first_.size >= kReduceLanes || inner_.in == first_.size) &&
                  (second_.size == 1 || std::min(first_.size, strip) * block >= kTileElements / 64);
        width = direct_ ? std::max(strip, std::min(kTileElements / block, 8 * kMostColumns)) : std::clamp(kTileElements / block, kReduceLanes, kMostColumns);
        chunk_ = std::clamp(kTileElements / (block * std::min(width, first_.size)), int64_t{1}, kFewBlocks);
    } else {
        direct_ = same_lane && one_run && (inner_.in == 1 || extent_ <= 1);
        const int64_t elements = direct_ ? kDirectElements : kTileElements;
        width = std::clamp(elements / std::max<int64_t>(1, extent_), int64_t{1}, kMostColumns);
        chunk_ = elements / kReduceBlock;
        if (n_reduced_ > 1 && std::abs(reduced_[n_reduced_ - 2].in) < std::abs(inner_.in)) {  // neighbours in memory are far apart in order
            chunk_ = std::clamp(kNeighbours * inner_.size / kReduceBlock, chunk_, kFarTileElements / kReduceBlock);
        }
    }
    chunk_ = std::min(chunk_, blocks_);
    group_first_ = std::min(width, first_.size);
    group_second_ = group_first_ == first_.size && !(as_columns_ && direct_) ? std::clamp(width / first_.size, int64_t{1}, second_.size) : 1;
    step_block_ = reducer_.partial_bytes * (as_columns_ ? results_ : 1);
    step_result_ = reducer_.partial_bytes * (as_columns_ ? 1 : blocks_);
}

int64_t Reduction::input_offset(int64_t outer) const {
    int64_t offset = 0;
    for (int d = n_kept_ - 1; d >= 0; --d) {
        offset += outer % kept_[d].size * kept_[d].in;
        outer /= kept_[d].size;
    }
    return offset;
}

int64_t Reduction::reduced_offset(int64_t position) const {
    int64_t offset = 0;
    for (int d = n_reduced_ - 1; d >= 0 && position > 0; --d) {
        offset += position % reduced_[d].size * reduced_[d].in;
        position /= reduced_[d].size;
    }
    return offset;
}

/// Elements [begin, end) of the extent of some results, as lanes.
void Reduction::gather(const char* base, int64_t n_second, int64_t n_first, int64_t begin, int64_t end, char* tile, int64_t result_pitch,
                       int64_t element_pitch) const {
    const int64_t length = inner_.size;
    const ReducedDim above = n_reduced_ > 1 ? reduced_[n_reduced_ - 2] : ReducedDim{1, 0};
    for (int64_t at = begin; at < end;) {
        const int64_t inside = at % length;
        int64_t rows = 1, run = std::min(length - inside, end - at);
        if (inside == 0 && run == length) rows = std::min(above.size - at / length % above.size, (end - at) / length);
        const BoxDim dims[] = {{n_second, second_.in, result_pitch * n_first},
                               {n_first, first_.in, result_pitch},
                               {rows, above.in, element_pitch * length},
                               {run, inner_.in, element_pitch}};
        move_box(dims, base + reduced_offset(at) * in_bytes_, in_bytes_, tile + (at - begin) * element_pitch * lane_bytes_, lane_bytes_, load_);
        at += rows * run;
    }
}

/// Blocks of rows to partial results, each row's one after the other.
void Reduction::rows(int64_t n_second, int64_t n_first, const char* base, int64_t begin, int64_t end, char* partial) {
    const int64_t n = end - begin, whole = n / kReduceBlock, rest = n - whole * kReduceBlock, blocks = std::max<int64_t>(1, ceil_div(n, kReduceBlock));
    const auto reduce = [&](const char* in, int64_t pitch, int64_t count, char* to) {
        if (blocks == 1) return reducer_.rows(block_call(in, pitch, n, count, begin, 0, to, nullptr));
        for (int64_t r = 0; r < count; ++r, in += pitch * lane_bytes_, to += blocks * reducer_.partial_bytes) {
            reducer_.rows(block_call(in, kReduceBlock, kReduceBlock, whole, begin, kReduceBlock, to, nullptr));
            if (rest == 0) continue;
            const int64_t at = whole * kReduceBlock;
            reducer_.rows(block_call(in + at * lane_bytes_, 0, rest, 1, begin + at, 0, to + whole * reducer_.partial_bytes, nullptr));
        }
    };
    if (direct_) {
        for (int64_t s = 0; s < n_second; ++s) {
            reduce(base + (s * second_.in + reduced_offset(begin)) * in_bytes_, first_.in, n_first, partial + s * n_first * blocks * reducer_.partial_bytes);
        }
        return;
    }
    const int64_t pitch = n_second * n_first == 1 ? n : ceil_div(n, kReduceLanes) * kReduceLanes + kReduceLanes;  // seldom a power of two
    const Scratch tile(static_cast<size_t>(std::max<int64_t>(1, n_second * n_first * pitch) * lane_bytes_));
    gather(base, n_second, n_first, begin, end, tile.as<char>(), pitch, 1);
    reduce(tile.as<char>(), pitch, n_second * n_first, partial);
}

/// One block of columns to partial results.
void Reduction::columns(int64_t n_second, int64_t n_first, const char* base, int64_t begin, int64_t end, char* partial) {
    const int64_t n = end - begin, count = n_second * n_first;
    const Scratch work(static_cast<size_t>(count * reducer_.work_bytes));
    if (direct_) return reducer_.columns(block_call(base + reduced_offset(begin) * in_bytes_, inner_.in, n, count, begin, 0, partial, work.as<void>()));
    const Scratch tile(static_cast<size_t>(std::max<int64_t>(1, n * count) * lane_bytes_));
    gather(base, n_second, n_first, begin, end, tile.as<char>(), 1, count);
    reducer_.columns(block_call(tile.as<void>(), count, n, count, begin, 0, partial, work.as<void>()));
}

void Reduction::task(int64_t group, int64_t chunk) {
    const int64_t groups_first = ceil_div(first_.size, group_first_), groups_second = ceil_div(second_.size, group_second_);
    const int64_t first = group % groups_first * group_first_, second = group / groups_first % groups_second * group_second_;
    const int64_t outer = group / groups_first / groups_second;
    const int64_t n_first = std::min(group_first_, first_.size - first), n_second = std::min(group_second_, second_.size - second);
    const char* base = static_cast<const char*>(in_.data) + (input_offset(outer) + second * second_.in + first * first_.in) * in_bytes_;
    const int64_t bytes = reducer_.partial_bytes, begin_block = chunk * chunk_, end_block = std::min(blocks_, begin_block + chunk_);
    const int64_t begin = begin_block * kReduceBlock, end = std::min(extent_, end_block * kReduceBlock);

    const int64_t results = n_second * n_first;
    if (chunk_ == blocks_) {  // all is here
        const Scratch scratch(static_cast<size_t>(results * blocks_ * bytes));
        auto* partial = scratch.as<char>();
        if (as_columns_) {
            for (int64_t b = 0; b < blocks_; ++b) {
                columns(n_second, n_first, base, b * kReduceBlock, std::min(extent_, (b + 1) * kReduceBlock), partial + b * results * bytes);
            }
            fold(partial, results * bytes, results);
        } else {
            rows(n_second, n_first, base, begin, end, partial);
            for (int64_t r = 0; r < results && blocks_ > 1; ++r) {
                fold(partial + r * blocks_ * bytes, bytes, 1);
                if (r > 0) std::memcpy(partial + r * bytes, partial + r * blocks_ * bytes, static_cast<size_t>(bytes));
            }
        }
        if (one_after_another_) return finish(partial, outer, second, first, results);
        for (int64_t s = 0; s < n_second; ++s) finish(partial + s * n_first * bytes, outer, second + s, first, n_first);
        return;
    }
    char* partial = partial_ + number(outer, second, first) * step_result_ + begin_block * step_block_;
    if (!as_columns_) return rows(n_second, n_first, base, begin, end, partial);  // of one result
    for (int64_t b = begin_block; b < end_block; ++b, partial += step_block_) {
        columns(n_second, n_first, base, b * kReduceBlock, std::min(extent_, (b + 1) * kReduceBlock), partial);
    }
}

void Reduction::fold(char* partial, int64_t step_block, int64_t together) const {
    fold_blocks(reducer_, partial, step_block, blocks_, together);
}

/// The same for results whose blocks several tasks went over, and the results.
void Reduction::fold_results(int64_t outer, int64_t second, int64_t first, int64_t n_first) const {
    char* partial = partial_ + number(outer, second, first) * step_result_;
    const int64_t together = as_columns_ ? n_first : 1;
    for (int64_t r = 0; r < n_first; r += together, partial += together * step_result_) {
        fold(partial, step_block_, together);
        finish(partial, outer, second, first + r, together);
    }
}

/// n partial results that lie one after the other, to where their results belong.
void Reduction::finish(const char* partial, int64_t outer, int64_t second, int64_t first, int64_t n) const {
    alignas(64) char tiles[2][kMostColumns * static_cast<int64_t>(kWidestElement)];
    for (int64_t at = 0; at < n; at += kMostColumns) {
        const int64_t m = std::min(kMostColumns, n - at);
        void* const results[] = {tiles[0], tiles[1]};
        reducer_.finish(partial + at * reducer_.partial_bytes, m, extent_, reducer_.parameter, results);
        for (int32_t k = 0; k < call_.n_outputs; ++k) {
            int64_t offset = second * second_.out[k] + (first + at) * first_.out[k], rest = outer;
            for (int d = n_kept_ - 1; d >= 0; --d) {
                offset += rest % kept_[d].size * kept_[d].out[k];
                rest /= kept_[d].size;
            }
            const View& out = call_.outputs[k];
            char* to = static_cast<char*>(out.data) + offset * size_of(dtype_of(out));
            find_convert(reducer_.results[k], dtype_of(out))(results[k], 1, to, first_.out[k], m);
        }
    }
}

void Reduction::run() {
    const int64_t groups = outer_ * ceil_div(second_.size, group_second_) * ceil_div(first_.size, group_first_), chunks = ceil_div(blocks_, chunk_);
    if (chunk_ == blocks_) return parallel_for(call_, groups, [&](int64_t group) { task(group, 0); });
    const Scratch partial(static_cast<size_t>(results_ * blocks_ * reducer_.partial_bytes));
    partial_ = partial.as<char>();
    parallel_for(call_, groups * chunks, [&](int64_t piece) { task(piece / chunks, piece % chunks); });
    const int64_t width = std::clamp(kPiece / blocks_, int64_t{1}, kMostColumns), strips = ceil_div(first_.size, width);
    parallel_for(call_, outer_ * second_.size * strips, [&](int64_t piece) {
        const int64_t first = piece % strips * width, above = piece / strips;
        fold_results(above / second_.size, above % second_.size, first, std::min(width, first_.size - first));
    });
}

}  // namespace

void reduce_blocks(const KernelCall& call, const BlockReducer& reducer, const bool (&reduced)[kMaxRank]) {
    Reduction(call, reducer, reduced).run();
}

void reduce_row(const BlockReducer& reducer, const void* row, int64_t n, void* const* results) {
    constexpr int64_t kMostBytes = 32;  // of a partial result
    alignas(64) char partial[kMostRowBlocks * kMostBytes];
    const int64_t whole = n / kReduceBlock, rest = n - whole * kReduceBlock, blocks = whole + (rest > 0);
    const auto reduce = [&](int64_t first, int64_t length, int64_t count) {
        reducer.rows({static_cast<const char*>(row) + first * size_of(reducer.lane), length, length, count, first, length,
                      partial + first / kReduceBlock * reducer.partial_bytes, nullptr, reducer.parameter});
    };
    if (whole > 0) reduce(0, kReduceBlock, whole);
    if (rest > 0) reduce(whole * kReduceBlock, rest, 1);
    fold_blocks(reducer, partial, reducer.partial_bytes, blocks, 1);
    reducer.finish(partial, 1, n, reducer.parameter, results);
}

void reduce_blocks(const KernelCall& call, const BlockReducer& reducer, int dims_position) {
    const Attributes& attributes = *call.attributes;
    const int rank = call.inputs[0].rank;
    const bool all = !attributes.present(dims_position) || attributes.length(dims_position) == 0;
    bool reduced[kMaxRank];
    std::fill(reduced, reduced + kMaxRank, all);
    if (!all && rank > 0) {
        for (int64_t i = 0; i < attributes.length(dims_position); ++i) {
            const int64_t d = attributes.list(dims_position)[i];
            reduced[d < 0 ? d + rank : d] = true;
        }
    }
    reduce_blocks(call, reducer, reduced);
}

}  // namespace clikart::cpu
