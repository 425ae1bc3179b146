// Copying between strided views.
#pragma once

#include "backends/cpu/convert.h"
#include "backends/cpu/move.h"

namespace clikart::cpu {

/// One copy, planned: `from`, broadcast to the shape of `to`, into `to`, converted where the dtypes differ.  The order of the
/// elements is free, so dimensions are walked as `to` lies in memory, neighbours merged; where `from` lies the other way
/// round, in tiles that both fit.  `written` is how many bytes the whole operator writes: many go past the caches.
class CopyPlan {
public:
    CopyPlan(const View& from, const View& to, int64_t written);

    /// Parts that may run at the same time.
    int64_t pieces() const noexcept { return (units_ + units_per_piece_ - 1) / units_per_piece_; }
    void run(int64_t piece) const;

private:
    struct Axis {
        int64_t size, to, from;  // strides in elements
    };
    void plan_rows();
    void plan_tiles(int crossing);
    void copy_row(char* to, const char* from, int64_t n) const;
    void copy_tile(char* to, const char* from, int64_t rows, int64_t columns) const;

    Axis axes_[kMaxRank];  // those walked one index after the other
    int rank_ = 0;
    Axis row_{};       // innermost: the elements of `to` are neighbours here, if anywhere
    Axis crossing_{};  // of tiles: here those of `from` are
    bool tiled_ = false;
    char* to_;
    const char* from_;
    int64_t to_element_, from_element_;
    ConvertFn convert_ = nullptr;  // where the dtypes differ
    RunFn run_ = nullptr;          // where they do not
    bool streamed_;
    // A unit is a stretch of a row, or a tile.
    int64_t row_step_, crossing_step_ = 1, units_, units_per_piece_;
};

/// Copies `from`, broadcast to the shape of `to`, into `to`, converted where the dtypes differ.
void copy_view(const KernelCall& call, const View& from, const View& to);

}  // namespace clikart::cpu
