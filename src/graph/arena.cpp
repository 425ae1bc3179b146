#include "graph/arena.h"

#include <algorithm>
#include <iterator>

#include "core/memory.h"

namespace clikart {
namespace {

int64_t rounded(int64_t bytes) noexcept {
    constexpr int64_t unit = kMemoryAlignment;
    return (std::max<int64_t>(bytes, 1) + unit - 1) / unit * unit;
}

}  // namespace

int64_t Arena::take(int64_t bytes) {
    const int64_t length = rounded(bytes);
    if (const auto fit = by_size_.lower_bound({length, 0}); fit != by_size_.end()) {
        const auto gap = gaps_.find(fit->second);
        const auto [offset, whole] = *gap;
        remove_gap(gap);
        if (whole > length) add_gap(offset + length, whole - length);
        return offset;
    }
    // A gap at the end grows.
    int64_t offset = size_;
    if (!gaps_.empty()) {
        const auto last = std::prev(gaps_.end());
        if (last->first + last->second == size_) {
            offset = last->first;
            remove_gap(last);
        }
    }
    size_ = offset + length;
    return offset;
}

void Arena::give_back(int64_t offset, int64_t bytes) {
    int64_t length = rounded(bytes);
    auto next = gaps_.lower_bound(offset);
    if (next != gaps_.end() && offset + length == next->first) {
        length += next->second;
        const auto after = std::next(next);
        remove_gap(next);
        next = after;
    }
    if (next != gaps_.begin()) {
        const auto before = std::prev(next);
        if (before->first + before->second == offset) {
            offset = before->first;
            length += before->second;
            remove_gap(before);
        }
    }
    add_gap(offset, length);
}

void Arena::add_gap(int64_t offset, int64_t length) {
    gaps_.emplace(offset, length);
    by_size_.emplace(length, offset);
}

void Arena::remove_gap(std::map<int64_t, int64_t>::iterator gap) {
    by_size_.erase({gap->second, gap->first});
    gaps_.erase(gap);
}

}  // namespace clikart
