// Places in one block of memory for values that live for a while.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace clikart {

/// Hands out places as a program goes along, and takes them back: the lowest gap that fits best.
class Arena {
public:
    /// The offset of `bytes` bytes, aligned for kernels.
    int64_t take(int64_t bytes);
    void give_back(int64_t offset, int64_t bytes);
    /// How large the block has to be.
    int64_t size() const noexcept { return size_; }

private:
    int64_t size_ = 0;
    std::map<int64_t, int64_t> gaps_;                // by offset: length
    std::set<std::pair<int64_t, int64_t>> by_size_;  // the same as (length, offset)
    void add_gap(int64_t offset, int64_t length);
    void remove_gap(std::map<int64_t, int64_t>::iterator gap);
};

}  // namespace clikart
