// Sorting lines of elements by radix: digit by digit of their keys, from the lowest, which keeps equal ones in order.
#pragma once

#include <utility>
#include <vector>

#include "backends/cpu/kernel.h"
#include "backends/cpu/sort_key.h"

namespace clikart::cpu {

/// From this length on one line is sorted in pieces.
inline constexpr int64_t kLongLine = 128 * 1024;

/// Sorts one line: keys with their places, in memory of its own that serves line after line.
template <class T, class Place>
class LineSorter {
public:
    using Key = typename SortKey<T>::Bits;
    using Item = Keyed<Key, Place>;

    /// For lines of n elements.  `call`: the pieces of long lines are run by it; null for lines that are a piece themselves.
    LineSorter(const KernelCall* call, int64_t n, Key flip)
        : call_(call),
          n_(n),
          flip_(flip),
          pieces_(call && n >= kLongLine ? std::min<int64_t>(kMostPieces, n / (kLongLine / 4)) : 1),
          memory_(static_cast<size_t>(2 * std::max<int64_t>(n, 1)) * sizeof(Item)) {}

    Key flip() const noexcept { return flip_; }

    /// The elements, `stride` apart, in ascending order of their keys; valid until the next call.
    const Item* sort(const T* from, int64_t stride) {
        return sort([=](int64_t i) { return from[i * stride]; });
    }
    /// The same for the elements that `at` returns, by their places.
    template <class F>
    const Item* sort(F&& at) {
        Item* items = memory_.template as<Item>();
        Item* spare = items + n_;
        std::vector<Key> differ(static_cast<size_t>(pieces_));
        const Key first = n_ > 0 ? SortKey<T>::of(at(0), flip_) : Key{0};
        each_piece([&](int64_t piece, int64_t begin, int64_t end) {
            Key bits = 0;
            for (int64_t i = begin; i < end; ++i) {
                const Key key = SortKey<T>::of(at(i), flip_);
                items[i] = {key, static_cast<Place>(i)};
                bits = static_cast<Key>(bits | (key ^ first));
            }
            differ[static_cast<size_t>(piece)] = bits;
        });
        if (n_ <= kShort) {
            insert(items);
            return items;
        }
        Key bits = 0;
        for (const Key own : differ) bits = static_cast<Key>(bits | own);
        const int digit = n_ >= kLongLine / 8 && sizeof(Key) >= 4 ? 11 : 8;
        counts_.resize(static_cast<size_t>(pieces_) << digit);
        for (int shift = 0; shift < SortKey<T>::kBits; shift += digit) {
            if ((bits >> shift & ((Key{1} << digit) - 1)) == 0) continue;
            pass(items, spare, shift, digit);
            std::swap(items, spare);
        }
        return items;
    }

    /// Calls f(piece, begin, end) for parts of a line.
    template <class F>
    void each_piece(F&& f) const {
        if (pieces_ == 1) return f(0, 0, n_);
        parallel_for(*call_, pieces_, [&](int64_t piece) { f(piece, n_ * piece / pieces_, n_ * (piece + 1) / pieces_); });
    }

private:
    static constexpr int64_t kMostPieces = 16, kShort = 40;

    void insert(Item* items) const noexcept {
        for (int64_t i = 1; i < n_; ++i) {
            const Item item = items[i];
            int64_t k = i;
            for (; k > 0 && item.key < items[k - 1].key; --k) items[k] = items[k - 1];
            items[k] = item;
        }
    }

    void pass(const Item* from, Item* to, int shift, int digit) {
        const auto mask = (Key{1} << digit) - 1;
        const auto digit_of = [=](const Item& item) { return static_cast<size_t>(item.key >> shift & mask); };
        const size_t values = size_t{1} << digit;
        each_piece([&](int64_t piece, int64_t begin, int64_t end) {
            Place* const counts = counts_.data() + static_cast<size_t>(piece) * values;
            std::fill_n(counts, values, Place{0});
            for (int64_t i = begin; i < end; ++i) ++counts[digit_of(from[i])];
        });
        Place next = 0;
        for (size_t value = 0; value < values; ++value) {
            for (size_t piece = 0; piece < static_cast<size_t>(pieces_); ++piece) next += std::exchange(counts_[piece * values + value], next);
        }
        each_piece([&](int64_t piece, int64_t begin, int64_t end) {
            Place* const places = counts_.data() + static_cast<size_t>(piece) * values;
            for (int64_t i = begin; i < end; ++i) to[places[digit_of(from[i])]++] = from[i];
        });
    }

    const KernelCall* const call_;
    const int64_t n_;
    const Key flip_;
    const int64_t pieces_;
    const Scratch memory_;
    std::vector<Place> counts_;
};

/// Calls f.operator()<Place>() with an unsigned type that can count n elements.
template <class F>
void with_place(int64_t n, F&& f) {
    if (n <= std::numeric_limits<uint32_t>::max()) {
        f.template operator()<uint32_t>();
    } else {
        f.template operator()<uint64_t>();
    }
}

}  // namespace clikart::cpu
