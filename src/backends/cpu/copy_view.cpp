#include "backends/cpu/copy.h"

#include "backends/cpu/loop.h"
#include "backends/cpu/tile.h"

namespace clikart::cpu {
namespace {

constexpr int64_t kTileBytes = 32 * 1024;    // what a tile takes in the first-level cache
constexpr int64_t kStretch = 4096;           // bytes of results that are converted before they are written past the caches
constexpr int64_t kSquare = 16;              // bytes: what transposing in registers needs on both sides
constexpr int64_t kShortestStreamed = 1024;  // bytes of a row
constexpr int64_t kLongRow = 64;             // elements: so many that are all the same are better written by themselves

}  // namespace

CopyPlan::CopyPlan(const View& from, const View& to, int64_t written)
    : to_(static_cast<char*>(to.data)),
      from_(static_cast<const char*>(from.data)),
      to_element_(size_of(dtype_of(to))),
      from_element_(size_of(dtype_of(from))),
      streamed_(written >= kStreamedBytes) {
    if (from.dtype != to.dtype) convert_ = find_convert(dtype_of(from), dtype_of(to));
    Axis axes[kMaxRank];
    int rank = 0;
    int64_t count = 1;
    for (int d = 0; d < to.rank; ++d) {
        count *= to.shape[d];
        if (to.shape[d] == 1) continue;
        const int own = d - (to.rank - from.rank);  // missing and size-1 dimensions stand still
        Axis axis{to.shape[d], to.strides[d], own < 0 || from.shape[own] == 1 ? 0 : from.strides[own]};
        if (axis.to < 0) {  // from the other end
            to_ += (axis.size - 1) * axis.to * to_element_;
            from_ += (axis.size - 1) * axis.from * from_element_;
            axis.to = -axis.to;
            axis.from = -axis.from;
        }
        axes[rank++] = axis;
    }
    if (count == 0) {
        units_ = 0, units_per_piece_ = 1, row_step_ = 1;
        return;
    }
    std::stable_sort(axes, axes + rank, [](const Axis& a, const Axis& b) { return a.to > b.to; });
    for (int d = 0; d < rank; ++d) {
        Axis* const last = rank_ > 0 ? &axes_[rank_ - 1] : nullptr;
        if (last && last->to == axes[d].to * axes[d].size && last->from == axes[d].from * axes[d].size) {
            *last = {last->size * axes[d].size, axes[d].to, axes[d].from};
        } else {
            axes_[rank_++] = axes[d];
        }
    }
    row_ = rank_ > 0 ? axes_[--rank_] : Axis{1, 1, 1};
    if (row_.to == 1 && row_.from != 1 && (row_.from != 0 || row_.size < kLongRow)) {
        for (int d = rank_ - 1; d >= 0; --d) {
            if (axes_[d].from != 1) continue;
            plan_tiles(d);
            return;
        }
    }
    plan_rows();
}

void CopyPlan::plan_rows() {
    streamed_ &= row_.to == 1 && row_.size * to_element_ >= kShortestStreamed;
    if (!convert_) run_ = find_run(to_element_, row_.from, row_.to, streamed_);
    row_step_ = std::min(row_.size, kPiece);
    units_ = ceil_div(row_.size, row_step_);
    for (int d = 0; d < rank_; ++d) units_ *= axes_[d].size;
    units_per_piece_ = std::max<int64_t>(1, kPiece / row_step_);
}

void CopyPlan::plan_tiles(int crossing) {
    tiled_ = true;
    crossing_ = axes_[crossing];
    std::copy(axes_ + crossing + 1, axes_ + rank_, axes_ + crossing);
    --rank_;
    // A side that is short makes the other one longer.
    // Two lines of results for each of many rows: so memory is read in long stretches.
    const int64_t widest = std::max(to_element_, from_element_), all = kTileBytes / widest, line = 64 / widest, short_side = 2 * line;
    crossing_step_ = std::min(crossing_.size, all / std::min(short_side, row_.size) / line * line);
    row_step_ = std::min(row_.size, std::max(short_side, all / crossing_step_ / line * line));
    units_ = ceil_div(row_.size, row_step_) * ceil_div(crossing_.size, crossing_step_);
    for (int d = 0; d < rank_; ++d) units_ *= axes_[d].size;
    units_per_piece_ = std::max<int64_t>(1, 2 * kPiece / (row_step_ * crossing_step_));
}

void CopyPlan::run(int64_t piece) const {
    const int64_t across = tiled_ ? ceil_div(crossing_.size, crossing_step_) : 1, along = ceil_div(row_.size, row_step_);
    const int64_t begin = piece * units_per_piece_, end = std::min(units_, begin + units_per_piece_);
    // Units in the order of the outer indices, then stretches of the row, then tiles across it.
    int64_t tile = begin % across, stretch = begin / across % along, outer = begin / across / along;
    int64_t index[kMaxRank];
    char* to = to_;
    const char* from = from_;
    for (int d = rank_ - 1; d >= 0; --d) {
        index[d] = outer % axes_[d].size;
        outer /= axes_[d].size;
        to += index[d] * axes_[d].to * to_element_;
        from += index[d] * axes_[d].from * from_element_;
    }
    for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t at = stretch * row_step_, n = std::min(row_step_, row_.size - at);
        char* const to_here = to + at * row_.to * to_element_;
        const char* const from_here = from + at * row_.from * from_element_;
        if (tiled_) {
            const int64_t i = tile * crossing_step_;
            copy_tile(to_here + i * crossing_.to * to_element_, from_here + i * from_element_, std::min(crossing_step_, crossing_.size - i), n);
            if (++tile < across) continue;
            tile = 0;
        } else {
            copy_row(to_here, from_here, n);
        }
        if (++stretch < along) continue;
        stretch = 0;
        for (int d = rank_ - 1; d >= 0; --d) {
            const Axis& axis = axes_[d];
            to += axis.to * to_element_;
            from += axis.from * from_element_;
            if (++index[d] < axis.size) break;
            index[d] = 0;
            to -= axis.size * axis.to * to_element_;
            from -= axis.size * axis.from * from_element_;
        }
    }
    if (streamed_) finish_streams();
}

void CopyPlan::copy_row(char* to, const char* from, int64_t n) const {
    if (run_) return run_(from, row_.from, to, row_.to, n);
    if (!streamed_) return convert_(from, row_.from, to, row_.to, n);
    alignas(64) char results[kStretch];
    const int64_t step = kStretch / to_element_;
    for (int64_t i = 0; i < n; i += step) {
        const int64_t m = std::min(step, n - i);
        if (row_.from == 1 && i + 3 * step <= n) {  // meanwhile nothing else asks memory for what comes next
            const char* const ahead = from + (i + 2 * step) * from_element_;
            for (int64_t line = 0; line < step * from_element_; line += 64) __builtin_prefetch(ahead + line);
        }
        convert_(from + i * row_.from * from_element_, row_.from, results, 1, m);
        stream(to + i * to_element_, 0, results, 0, 1, m * to_element_);
    }
}

/// `rows` along the dimension where `from` is dense, `columns` where `to` is.
void CopyPlan::copy_tile(char* to, const char* from, int64_t rows, int64_t columns) const {
    const int64_t to_step = crossing_.to * to_element_, from_step = row_.from * from_element_;
    if (rows * from_element_ < kSquare) {
        for (int64_t i = 0; i < rows; ++i) {
            if (convert_) {
                convert_(from + i * from_element_, row_.from, to + i * to_step, 1, columns);
            } else {
                gather(from + i * from_element_, row_.from, to + i * to_step, columns, to_element_);
            }
        }
        return;
    }
    alignas(64) char tile[kTileBytes];
    const int64_t step = columns * from_element_;
    const bool together = !convert_ && streamed_ && to_step == step;  // the rows of the result are one stretch of memory
    if (columns * from_element_ < kSquare) {
        for (int64_t j = 0; j < columns; ++j) {
            char* const place = (together ? tile : to) + j * to_element_;
            if (convert_) {
                convert_(from + j * from_step, 1, place, crossing_.to, rows);
            } else {
                scatter(from + j * from_step, place, crossing_.to, rows, to_element_);
            }
        }
        if (together) stream(to, 0, tile, 0, 1, rows * step);
        return;
    }
    // By way of a tile that is dense: rows of large matrices compete for the same few lines of the first-level cache.
    transpose(from, from_step, tile, step, rows, columns, from_element_);
    if (together) return stream(to, 0, tile, 0, 1, rows * step);
    if (!convert_ && streamed_) return stream(to, to_step, tile, step, rows, step);
    for (int64_t i = 0; i < rows; ++i) {
        char* const row = to + i * to_step;
        const char* const elements = tile + i * step;
        if (!convert_) {
            std::memcpy(row, elements, static_cast<size_t>(step));
        } else if (!streamed_) {
            convert_(elements, 1, row, 1, columns);
        } else {
            alignas(64) char results[kTileBytes];
            convert_(elements, 1, results, 1, columns);
            stream(row, 0, results, 0, 1, columns * to_element_);
        }
    }
}

void copy_view(const KernelCall& call, const View& from, const View& to) {
    const CopyPlan plan(from, to, numel(shape_of(to)) * size_of(dtype_of(to)));
    const int64_t pieces = plan.pieces();
    if (pieces == 1) return plan.run(0);
    if (pieces > 1) parallel_for(call, pieces, [&](int64_t piece) { plan.run(piece); });
}

}  // namespace clikart::cpu
