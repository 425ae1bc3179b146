// Kernels that select without sorting all: topk, kthvalue.
// Of a line the best so far are kept, and the rest is only compared with the worst of them, a vector at a time.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/topk.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/indices.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"
#include "backends/cpu/radix_sort.h"
#include "backends/cpu/tile.h"

#ifndef CLIKART_CPU_TOPK_ONCE
#define CLIKART_CPU_TOPK_ONCE
namespace clikart::cpu {

/// Looks at contiguous elements from `at` on for keys below the limit, a vector at a time, until a vector has some: their
/// places go to `hits`, how many there are is returned, and `at` is then behind the vector.  None when less than a vector is
/// left before `end`.
using NextHits = int64_t (*)(const void* elements, int64_t& at, int64_t end, uint64_t limit, uint64_t flip, int64_t* hits);
inline constexpr int64_t kMostHits = 64;

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
int64_t next_hits(const void* elements, int64_t& at, int64_t end, uint64_t limit, uint64_t flip, int64_t* hits) {
    using Key = SortKey<T>;
    using Bits = typename Key::Bits;
    // Loaded as what it is, where that is no class.
    using Lane = std::conditional_t<std::is_floating_point_v<T>, T, Bits>;
    const hn::ScalableTag<Bits> d;
    const hn::Rebind<Lane, decltype(d)> loaded;
    const auto* const x = static_cast<const Lane*>(elements);
    const auto lanes = static_cast<int64_t>(hn::Lanes(d));
    const auto sign = hn::Set(d, Key::kSign), ones = hn::Set(d, Key::kNaN), least = hn::Set(d, static_cast<Bits>(limit)),
               turn = hn::Set(d, static_cast<Bits>(flip));
    for (; at + lanes <= end; at += lanes) {
        auto bits = hn::BitCast(d, hn::LoadU(loaded, x + at));
        if constexpr (Key::kIsFloat) {
            const auto is_nan = hn::Gt(hn::AndNot(sign, bits), hn::Set(d, Key::infinity()));
            bits = hn::IfThenZeroElse(hn::Eq(bits, sign), bits);
            bits = hn::Xor(bits, hn::IfThenElse(hn::Lt(bits, sign), sign, ones));
            bits = hn::IfThenElse(is_nan, ones, bits);
        } else if constexpr (std::is_signed_v<T>) {
            bits = hn::Xor(bits, sign);
        }
        const auto below = hn::Lt(hn::Xor(bits, turn), least);
        if (hn::AllFalse(d, below)) continue;
        uint8_t bytes[kMostHits / 8] = {};
        hn::StoreMaskBits(d, below, bytes);
        uint64_t mask = 0;
        std::memcpy(&mask, bytes, sizeof mask);
        int64_t count = 0;
        for (; mask != 0; mask &= mask - 1) hits[count++] = at + std::countr_zero(mask);
        at += lanes;
        return count;
    }
    return 0;
}

NextHits find_next_hits(DType dtype) {
    NextHits found = nullptr;
    with_stored_type(dtype, [&]<class T>() { found = &next_hits<T>; });
    return found;
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_next_hits);

/// Finds the k first of some elements, in order.
template <class T, class Place>
class Selector {
public:
    using Key = SortKey<T>;
    using Bits = typename Key::Bits;
    using Item = Keyed<Bits, Place>;

    Selector(NextHits next, int64_t n, int64_t k, Bits flip)
        : next_(next),
          k_(k),
          flip_(flip),
          inserts_(k <= kInserted),
          room_(inserts_ ? k : std::min(n, 4 * k)),
          memory_(static_cast<size_t>(room_) * sizeof(Item)),
          items_(memory_.template as<Item>()) {}

    /// Of elements [0, n), at least k and contiguous; places count from `first`.
    const Item* select(const T* from, int64_t n, int64_t first) {
        int64_t at = 0;
        for (count_ = 0; at < std::min(n, room_); ++at) add({Key::of(from[at], flip_), static_cast<Place>(first + at)});
        shrink();
        const auto offer = [&](int64_t i) {
            const Bits key = Key::of(from[i], flip_);
            if (key >= limit_) return;  // of equal elements the first is kept
            if (!inserts_ && count_ == room_) {
                shrink();
                if (key >= limit_) return;
            }
            add({key, static_cast<Place>(first + i)});
        };
        int64_t hits[kMostHits];
        while (const int64_t found = next_(from, at, n, limit_, flip_, hits)) {
            for (int64_t i = 0; i < found; ++i) offer(hits[i]);
        }
        for (; at < n; ++at) offer(at);
        shrink();
        if (!inserts_) std::sort(items_, items_ + k_);
        return items_;
    }

private:
    static constexpr int64_t kInserted = 64;  // up to here they are kept in order, else there is room for some more

    /// Adds one that stands behind all others in its line.
    void add(Item item) noexcept {
        int64_t place = inserts_ && count_ == k_ ? k_ - 1 : count_++;  // over the last, or behind it
        for (; inserts_ && place > 0 && item.key < items_[place - 1].key; --place) items_[place] = items_[place - 1];
        items_[place] = item;
        if (inserts_) limit_ = items_[count_ - 1].key;
    }
    /// Keeps the k first.
    void shrink() {
        if (!inserts_) std::nth_element(items_, items_ + k_ - 1, items_ + count_);
        count_ = k_;
        limit_ = items_[k_ - 1].key;
    }

    const NextHits next_;
    const int64_t k_;
    const Bits flip_;
    const bool inserts_;
    const int64_t room_;
    const Scratch memory_;
    Item* const items_;
    int64_t count_ = 0;
    Bits limit_ = 0;  // the key of the last one that is kept
};

/// What is wanted of each line: the elements [first, k) of those in order.
struct Wanted {
    int dim;
    int64_t k, first;
    bool largest;
    Part values, places;
    int64_t values_along, places_along;
};

template <class T, class Place>
void select_lines(const KernelCall& call, const Wanted& wanted) {
    using Key = SortKey<T>;
    using Item = Keyed<typename Key::Bits, Place>;
    const View& x = call.inputs[0];
    const int64_t n = size_along(x, wanted.dim), along = stride_along(x, wanted.dim), k = wanted.k;
    const Part lines = without(x, wanted.dim);
    const int64_t count = lines.count();
    const typename Key::Bits flip = wanted.largest ? Key::kNaN : typename Key::Bits{0};
    const NextHits next = HWY_DYNAMIC_DISPATCH(find_next_hits)(dtype_of(x));
    const auto line_at = [&](int64_t line) { return static_cast<const T*>(x.data) + lines.offset(line); };
    const auto put = [&](int64_t line, const Item* items) {
        auto* const values = static_cast<T*>(wanted.values.view().data) + wanted.values.offset(line);
        const T* const from = line_at(line);
        auto* const places = static_cast<int64_t*>(wanted.places.view().data) + wanted.places.offset(line);
        for (int64_t i = wanted.first; i < k; ++i) {
            const auto place = static_cast<int64_t>(items[i].place);
            values[(i - wanted.first) * wanted.values_along] = from[place * along];
            places[(i - wanted.first) * wanted.places_along] = place;
        }
    };
    const auto select = [&](Selector<T, Place>& selector, const T* from, const Scratch& tile, int64_t begin, int64_t end) {
        const T* const part = from + begin * along;
        if (along == 1) return selector.select(part, end - begin, begin);
        gather(reinterpret_cast<const char*>(part), along, tile.as<char>(), end - begin, sizeof(T));
        return selector.select(tile.as<const T>(), end - begin, begin);
    };

    constexpr int64_t kMostPieces = 16, kFew = 8, kFewest = 16;  // where k is not a few of a line, all of it is sorted
    const bool sorts = k > n / kFew && k > kFewest;
    if (n >= kLongLine) {
        const int64_t parts = std::clamp<int64_t>(n / std::max(kPiece, 64 * k), 1, kMostPieces);
        if (sorts) {
            LineSorter<T, Place> sorter(&call, n, flip);
            for (int64_t line = 0; line < count; ++line) put(line, sorter.sort(line_at(line), along));
            return;
        }
        const Scratch best(static_cast<size_t>(parts * k) * sizeof(Item));
        for (int64_t line = 0; line < count; ++line) {
            parallel_for(call, parts, [&](int64_t part) {
                const int64_t begin = n * part / parts, end = n * (part + 1) / parts;
                const Scratch tile(along == 1 ? 1 : static_cast<size_t>(end - begin) * sizeof(T));
                Selector<T, Place> selector(next, end - begin, k, flip);
                std::copy_n(select(selector, line_at(line), tile, begin, end), k, best.as<Item>() + part * k);
            });
            std::nth_element(best.as<Item>(), best.as<Item>() + k - 1, best.as<Item>() + parts * k);
            std::sort(best.as<Item>(), best.as<Item>() + k);
            put(line, best.as<Item>());
        }
        return;
    }
    const int64_t per_piece = std::max<int64_t>(1, kPiece / n);
    parallel_for(call, (count + per_piece - 1) / per_piece, [&](int64_t piece) {
        const int64_t begin = piece * per_piece, end = std::min(count, begin + per_piece);
        if (sorts) {
            LineSorter<T, Place> sorter(nullptr, n, flip);
            for (int64_t line = begin; line < end; ++line) put(line, sorter.sort(line_at(line), along));
            return;
        }
        const Scratch tile(along == 1 ? 1 : static_cast<size_t>(n) * sizeof(T));
        Selector<T, Place> selector(next, n, k, flip);
        for (int64_t line = begin; line < end; ++line) put(line, select(selector, line_at(line), tile, 0, n));
    });
}

void select(const KernelCall& call, const Wanted& wanted) {
    const View& x = call.inputs[0];
    with_stored_type(dtype_of(x), [&]<class T>() { with_place(size_along(x, wanted.dim), [&]<class Place>() { select_lines<T, Place>(call, wanted); }); });
}

void topk(const KernelCall& call) {
    const View &x = call.inputs[0], &values = call.outputs[0], &places = call.outputs[1];
    const int dim = dim_of(call, attribute::topk_dim, x);
    const bool largest = call.attributes->integer(attribute::topk_largest) != 0;
    select(call, {dim, call.attributes->integer(attribute::topk_k), 0, largest, without(values, dim), without(places, dim), stride_along(values, dim),
                  stride_along(places, dim)});
}

void kthvalue(const KernelCall& call) {
    const View& x = call.inputs[0];
    const int dim = dim_of(call, attribute::kthvalue_dim, x);
    const int64_t k = call.attributes->integer(attribute::kthvalue_k);
    const auto result = [&](const View& out) { return out.rank == x.rank ? without(out, dim) : Part(out, shape_of(out), strides_of(out)); };
    select(call, {dim, k, k - 1, false, result(call.outputs[0]), result(call.outputs[1]), 0, 0});
}

}  // namespace

// The 8-bit floats have no order here: they are only stored.
KernelFn kernel_topk(DType t) {
    return if_computed(t, &kernel<topk>);
}
KernelFn kernel_kthvalue(DType t) {
    return if_computed(t, &kernel<kthvalue>);
}

}  // namespace clikart::cpu
#endif
