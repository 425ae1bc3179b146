// Attention without the matrix of scores: a block of queries meets one block of keys after the other.
//
// For each query three things are kept: the largest score so far, the sum of exp(score - largest), and the sum of the values
// with these factors.  When a larger score comes, what was summed up shrinks by exp(old largest - new largest).
// Products of float32 blocks go through oneDNN; those of few queries, which only stream keys and values, and of float64
// through loops of their own.  Borders of blocks depend on shapes alone.
#include "backends/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/attention.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <optional>

#include "backends/cpu/kernels.h"
#include "backends/cpu/lanes.h"
#include "backends/cpu/math-inl.h"
#include "backends/cpu/onednn_matmul.h"
#include "backends/cpu/vectors-inl.h"

#ifndef CLIKART_CPU_ATTENTION_ONCE
#define CLIKART_CPU_ATTENTION_ONCE
namespace clikart::cpu {

/// Rows of contiguous elements.
template <class T>
struct Rows {
    T* data;
    int64_t rows, columns, stride;
    T* row(int64_t i) const noexcept { return data + i * stride; }
};

/// What is kept of one query.
template <class T>
struct Softmax {
    T largest, sum;
};

template <class T>
struct AttentionFns {
    /// out[i, j] = the product of rows i of a and j of b.
    void (*dots)(const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& out);
    /// out += a b
    void (*add_product)(const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& out);
    /// Turns n scores, times scale, plus `mask` where it is not null, to factors; returns what earlier sums shrink by.
    T (*factors)(T* scores, int64_t n, T scale, const T* mask, Softmax<T>& state);
    /// to = to * factor
    void (*shrink)(T* to, int64_t n, T factor);
    /// to += from
    void (*add)(const T* from, T* to, int64_t n);
};

struct AttentionTable {
    AttentionFns<float> f32;
    AttentionFns<double> f64;
};

}  // namespace clikart::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace clikart::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Calls f(d, at) for whole vectors of [0, n), then for single elements.
template <class T, class F>
HWY_INLINE void in_vectors(int64_t n, F&& f) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    int64_t at = 0;
    for (; at + step <= n; at += step) f(d, at);
    for (; at < n; ++at) f(one, at);
}

/// The products of one row with N others.
template <int N, class T>
HWY_INLINE void dots_of(const T* a, const T* b, int64_t stride, int64_t n, T* out) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    V sums[N];
    for (V& sum : sums) sum = hn::Zero(d);
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        const V x = hn::LoadU(d, a + i);
        for (int k = 0; k < N; ++k) sums[k] = hn::MulAdd(x, hn::LoadU(d, b + k * stride + i), sums[k]);
    }
    if (i < n) {
        const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
        const V x = hn::MaskedLoad(mask, d, a + i);
        for (int k = 0; k < N; ++k) sums[k] = hn::MulAdd(x, hn::MaskedLoad(mask, d, b + k * stride + i), sums[k]);
    }
    for (int k = 0; k < N; ++k) out[k] = hn::GetLane(hn::SumOfLanes(d, sums[k]));
}

template <class T>
void dots(const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& out) {
    constexpr int kAbreast = 4;
    int64_t j = 0;
    for (; j + kAbreast <= b.rows; j += kAbreast) {
        for (int64_t i = 0; i < a.rows; ++i) dots_of<kAbreast>(a.row(i), b.row(j), b.stride, a.columns, out.row(i) + j);
    }
    for (; j < b.rows; ++j) {
        for (int64_t i = 0; i < a.rows; ++i) dots_of<1>(a.row(i), b.row(j), b.stride, a.columns, out.row(i) + j);
    }
}

/// N vectors of columns of one row.
template <int N, class D, class T>
HWY_INLINE void add_product_of(D d, const T* a, const Rows<const T>& b, int64_t at, T* out) {
    using V = hn::Vec<D>;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    V sums[N];
    for (int k = 0; k < N; ++k) sums[k] = hn::LoadU(d, out + at + k * step);
    for (int64_t j = 0; j < b.rows; ++j) {
        const V factor = hn::Set(d, a[j]);
        const T* const line = b.row(j) + at;
        for (int k = 0; k < N; ++k) sums[k] = hn::MulAdd(factor, hn::LoadU(d, line + k * step), sums[k]);
    }
    for (int k = 0; k < N; ++k) hn::StoreU(sums[k], d, out + at + k * step);
}

template <class T>
void add_product(const Rows<const T>& a, const Rows<const T>& b, const Rows<T>& out) {
    const hn::ScalableTag<T> d;
    const hn::CappedTag<T, 1> one;
    constexpr int kAbreast = 4;
    const auto step = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < a.rows; ++i) {
        int64_t at = 0;
        for (; at + kAbreast * step <= b.columns; at += kAbreast * step) add_product_of<kAbreast>(d, a.row(i), b, at, out.row(i));
        for (; at + step <= b.columns; at += step) add_product_of<1>(d, a.row(i), b, at, out.row(i));
        for (; at < b.columns; ++at) add_product_of<1>(one, a.row(i), b, at, out.row(i));
    }
}

template <class T>
T factors(T* scores, int64_t n, T scale, const T* mask, Softmax<T>& state) {
    const hn::ScalableTag<T> d;
    using V = hn::Vec<decltype(d)>;
    constexpr T lowest = -std::numeric_limits<T>::infinity();
    const V nothing = hn::Set(d, lowest), times = hn::Set(d, scale);
    V top = nothing;  // a NaN may be lost here, but comes back through exp
    vectors(d, 0, n, [&](int64_t at, auto some, auto whole) {
        V s = hn::Mul(load(d, some, whole, scores + at), times);
        if (mask) s = hn::Add(s, load(d, some, whole, mask + at));
        store(d, s, some, whole, scores + at);
        if constexpr (whole) {
            top = hn::Max(top, s);
        } else {
            top = hn::Max(top, hn::IfThenElse(some, s, nothing));
        }
    });
    const T before = state.largest, found = hn::GetLane(hn::MaxOfLanes(d, top));
    const T largest = found > before ? found : before;
    // Where nothing is seen yet, any number but -infinity makes exp(-infinity - it) zero.
    const T shift = largest == lowest ? T(0) : largest;
    const V minus = hn::Set(d, shift);
    V sum = hn::Zero(d);
    vectors(d, 0, n, [&](int64_t at, auto some, auto whole) {
        const V e = exp(d, hn::Sub(load(d, some, whole, scores + at), minus));
        store(d, e, some, whole, scores + at);
        sum = hn::Add(sum, hn::IfThenElseZero(some, e));
    });
    const hn::CappedTag<T, 1> one;
    const T shrunk = before == largest ? T(1) : hn::GetLane(exp(one, hn::Set(one, before - shift)));
    state.largest = largest;
    state.sum = state.sum * shrunk + hn::GetLane(hn::SumOfLanes(d, sum));
    return shrunk;
}

template <class T>
void shrink(T* to, int64_t n, T factor) {
    in_vectors<T>(n, [&](auto d, int64_t at) { hn::StoreU(hn::Mul(hn::LoadU(d, to + at), hn::Set(d, factor)), d, to + at); });
}

template <class T>
void add(const T* from, T* to, int64_t n) {
    in_vectors<T>(n, [&](auto d, int64_t at) { hn::StoreU(hn::Add(hn::LoadU(d, to + at), hn::LoadU(d, from + at)), d, to + at); });
}

AttentionTable find_attention() {
    return {{&dots<float>, &add_product<float>, &factors<float>, &shrink<float>, &add<float>},
            {&dots<double>, &add_product<double>, &factors<double>, &shrink<double>, &add<double>}};
}

}  // namespace
}  // namespace clikart::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace clikart::cpu {
namespace {

HWY_EXPORT(find_attention);

/// A stack of matrices under the result's dimensions before the last two.
template <class T>
class Stack {
public:
    /// `grouped`: neighbouring heads of the result may share one of this.
    Stack(const View& view, const Dims& lead, bool grouped)
        : data_(static_cast<const char*>(view.data)),
          lead_(lead),
          dtype_(dtype_of(view)),
          element_(size_of(dtype_)),
          convert_(find_convert(dtype_, lane_dtype<T>)) {
        const auto size = [&](int from_last) { return view.rank > from_last ? view.shape[view.rank - 1 - from_last] : 1; };
        const auto stride = [&](int from_last) { return size(from_last) == 1 ? 0 : view.strides[view.rank - 1 - from_last]; };
        rows_ = size(1), columns_ = size(0), row_ = stride(1), column_ = stride(0);
        strides_.resize(lead.rank());
        for (int d = 0; d < lead.rank(); ++d) strides_[d] = stride(lead.rank() + 1 - d);
        if (grouped && lead.rank() > 0 && size(2) > 1) shared_ = lead[lead.rank() - 1] / size(2);
        as_it_is_ = dtype_ == lane_dtype<T> && (column_ == 1 || columns_ == 1) && (rows_ == 1 || row_ >= columns_);
    }

    int64_t rows() const noexcept { return rows_; }
    int64_t columns() const noexcept { return columns_; }
    DType dtype() const noexcept { return dtype_; }
    /// Whether all rows are one.
    bool has_one_row() const noexcept { return row_ == 0; }
    /// Matrix `index`, from element (row, column) on.
    const char* at(int64_t index, int64_t row, int64_t column) const noexcept {
        int64_t offset = row * row_ + column * column_;
        for (int d = lead_.rank() - 1; d >= 0; --d) {
            int64_t i = index % lead_[d];
            index /= lead_[d];
            if (d == lead_.rank() - 1) i /= shared_;
            offset += i * strides_[d];
        }
        return data_ + offset * element_;
    }
    /// Rows from `first` on: where they are if they lie there as T, else brought to `room`.
    Rows<const T> read(int64_t index, int64_t first, int64_t n, T* room) const {
        const char* const from = at(index, first, 0);
        if (as_it_is_) return {reinterpret_cast<const T*>(from), n, columns_, std::max(row_, columns_)};
        for (int64_t r = 0; r < n; ++r) convert_(from + r * row_ * element_, column_, room + r * columns_, 1, columns_);
        return {room, n, columns_, columns_};
    }
    /// Part of one row, as T; bools as what they add to a score.
    void read_mask(int64_t index, int64_t row, int64_t column, int64_t n, T* to) const {
        const char* const from = at(index, row, column);
        if (dtype_ != DType::Bool) return convert_(from, column_, to, 1, n);
        const auto* const seen = reinterpret_cast<const bool*>(from);
        for (int64_t i = 0; i < n; ++i) to[i] = seen[i * column_] ? T(0) : -std::numeric_limits<T>::infinity();
    }

private:
    const char* const data_;
    const Dims& lead_;
    const DType dtype_;
    const int64_t element_;
    const ConvertFn convert_;
    int64_t rows_, columns_, row_, column_, shared_ = 1;
    Dims strides_;
    bool as_it_is_;
};

/// C = A B for blocks; B may be given as its transpose.
void product(const Rows<const float>& a, const Rows<const float>& b, bool transposed, const Rows<float>& c) {
    const OneDnnShape shape{
        DType::Float32, DType::Float32, a.rows, c.columns, a.columns, a.stride, 1, transposed ? 1 : b.stride, transposed ? b.stride : 1, c.stride, 0};
    OneDnnProduct::find(shape)->run(a.data, b.data, c.data);
}

constexpr int64_t kKeys = 512;  // in a block
constexpr int64_t kFew = 4;     // so many queries are not worth a product of matrices

template <class T>
class Attention {
public:
    explicit Attention(const KernelCall& call)
        : out_(call.outputs[0]),
          lead_(lead_of(call.outputs[0])),
          grouped_(call.attributes->integer(attribute::scaled_dot_product_attention_enable_gqa) != 0),
          query_(call.inputs[0], lead_, false),
          key_(call.inputs[1], lead_, grouped_),
          value_(call.inputs[2], lead_, grouped_),
          causal_(call.attributes->integer(attribute::scaled_dot_product_attention_is_causal) != 0) {
        constexpr int scale = attribute::scaled_dot_product_attention_scale;
        const auto width = static_cast<double>(query_.columns());
        scale_ = static_cast<T>(call.attributes->present(scale) ? call.attributes->real(scale) : 1 / std::sqrt(std::max(width, 1.0)));
        if (const View* mask = optional_input(call, 3, attribute::scaled_dot_product_attention_given)) mask_.emplace(*mask, lead_, false);
        const AttentionTable table = HWY_DYNAMIC_DISPATCH(find_attention)();
        if constexpr (sizeof(T) == sizeof(float)) {
            fns_ = table.f32;
        } else {
            fns_ = table.f64;
        }
        // Large blocks read keys less often; there should be enough to share out.
        constexpr int64_t kLargest = 128, kSmallest = 32, kEnough = 16;
        queries_ = kLargest;
        while (queries_ > kSmallest && numel(lead_) * blocks() < kEnough) queries_ /= 2;
    }

    void run(const KernelCall& call) const {
        parallel_for(call, numel(lead_) * blocks(), [&](int64_t piece) { attend(piece / blocks(), piece % blocks() * queries_); });
    }

private:
    static Dims lead_of(const View& out) {
        Dims lead;
        for (int d = 0; d < out.rank - 2; ++d) lead.push_back(out.shape[d]);
        return lead;
    }
    int64_t blocks() const noexcept { return (query_.rows() + queries_ - 1) / queries_; }

    /// One block of queries of one matrix of the stack.
    void attend(int64_t index, int64_t first) const {
        const int64_t m = std::min(queries_, query_.rows() - first), width = query_.columns(), values = value_.columns();
        const int64_t visible = causal_ ? std::min(key_.rows(), first + m) : key_.rows(), most = std::min(kKeys, visible);
        const Scratch room(static_cast<size_t>(m * (width + most + 2 * values) + most * (width + values + 1)) * sizeof(T));
        T *const q_room = room.template as<T>(), *const scores_room = q_room + m * width, *const sum_room = scores_room + m * most,
                 *const part_room = sum_room + m * values, *const k_room = part_room + m * values, *const v_room = k_room + most * width,
                 *const mask_room = v_room + most * values;
        const Scratch state_room(static_cast<size_t>(m) * sizeof(Softmax<T>));
        auto* const state = state_room.template as<Softmax<T>>();
        std::fill_n(state, m, Softmax<T>{-std::numeric_limits<T>::infinity(), 0});
        std::fill_n(sum_room, m * values, T(0));

        const Rows<const T> queries = query_.read(index, first, m, q_room);
        const Rows<T> sums{sum_room, m, values, values};
        for (int64_t from = 0; from < visible; from += kKeys) {
            const int64_t n = std::min(kKeys, visible - from);
            const Rows<T> scores{scores_room, m, n, most};
            score(queries, key_.read(index, from, n, k_room), scores);
            weigh(index, first, from, scores, mask_room, state, sums);
            add_values({scores.data, m, n, most}, value_.read(index, from, n, v_room), sums, part_room);
        }
        for (int64_t i = 0; i < m; ++i) {
            fns_.shrink(sums.row(i), values, state[i].sum == 0 ? T(0) : 1 / state[i].sum);
        }
        const int64_t at = (index * query_.rows() + first) * values;
        find_convert(lane_dtype<T>, dtype_of(out_))(sum_room, 1, static_cast<char*>(out_.data) + at * size_of(dtype_of(out_)), 1, m * values);
    }

    void score(const Rows<const T>& queries, const Rows<const T>& keys, const Rows<T>& scores) const {
        if constexpr (sizeof(T) == sizeof(float)) {
            if (queries.rows > kFew && queries.columns > 0) return product(queries, keys, true, scores);
        }
        fns_.dots(queries, keys, scores);
    }

    /// From scores to factors.
    void weigh(int64_t index, int64_t first, int64_t from, const Rows<T>& scores, T* mask_room, Softmax<T>* state, const Rows<T>& sums) const {
        for (int64_t i = 0; i < scores.rows; ++i) {
            const int64_t seen = causal_ ? std::clamp<int64_t>(first + i + 1 - from, 0, scores.columns) : scores.columns;
            if (mask_ && (i == 0 || !mask_->has_one_row())) mask_->read_mask(index, first + i, from, scores.columns, mask_room);
            if (seen > 0) {
                const T shrunk = fns_.factors(scores.row(i), seen, scale_, mask_ ? mask_room : nullptr, state[i]);
                if (from > 0 && shrunk != 1) fns_.shrink(sums.row(i), sums.columns, shrunk);
            }
            std::fill(scores.row(i) + seen, scores.row(i) + scores.columns, T(0));
        }
    }

    void add_values(const Rows<const T>& factors, const Rows<const T>& values, const Rows<T>& sums, T* part_room) const {
        if constexpr (sizeof(T) == sizeof(float)) {
            if (factors.rows > kFew) {
                product(factors, values, false, {part_room, sums.rows, sums.columns, sums.columns});
                return fns_.add(part_room, sums.data, sums.rows * sums.columns);
            }
        }
        fns_.add_product(factors, values, sums);
    }

    const View& out_;
    const Dims lead_;
    const bool grouped_;
    const Stack<T> query_, key_, value_;
    const bool causal_;
    std::optional<Stack<T>> mask_;
    T scale_;
    AttentionFns<T> fns_;
    int64_t queries_;
};

void attention(const KernelCall& call) {
    if (call.compute == static_cast<int32_t>(DType::Float64)) {
        Attention<double>(call).run(call);
    } else {
        Attention<float>(call).run(call);
    }
}

}  // namespace

KernelFn kernel_scaled_dot_product_attention(DType t) {
    if (!computes(t)) return nullptr;
    if (t != DType::Float64) OneDnnProduct::wake();
    return &kernel<attention>;
}

}  // namespace clikart::cpu
#endif
