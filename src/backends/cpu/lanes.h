// Operands of any float dtype and layout as the lanes an operator computes with: double for float64, float for the others.
#pragma once

#include <memory>

#include "backends/cpu/convert.h"
#include "backends/cpu/loop.h"

namespace clikart::cpu {

template <class T>
inline constexpr DType lane_dtype = sizeof(T) == sizeof(float) ? DType::Float32 : DType::Float64;

/// Stretches of an operand in row-major order.
template <class T>
class LaneReader {
public:
    explicit LaneReader(const View& view)
        : loop_(view, {}),
          stride_(loop_.inner_stride(0)),
          as_it_is_(stride_ == 1 && dtype_of(view) == lane_dtype<T>),
          convert_(find_convert(dtype_of(view), lane_dtype<T>)) {}

    int64_t count() const noexcept { return loop_.count(); }
    /// Elements [begin, begin + n): where they are if they lie there as T, else brought to `room`.
    const T* read(int64_t begin, int64_t n, T* room) const {
        const T* place = room;
        loop_.runs(begin, begin + n, [&](char* const* p, int64_t length) {
            if (as_it_is_ && length == n) {
                place = reinterpret_cast<const T*>(p[0]);
            } else {
                convert_(p[0], stride_, room, 1, length);
                room += length;
            }
        });
        return place;
    }

private:
    const StridedLoop<1> loop_;
    const int64_t stride_;
    const bool as_it_is_;
    const ConvertFn convert_;
};

/// A contiguous result.
template <class T>
class LaneWriter {
public:
    explicit LaneWriter(const View& view)
        : data_(static_cast<char*>(view.data)),
          size_(size_of(dtype_of(view))),
          as_it_is_(dtype_of(view) == lane_dtype<T>),
          convert_(find_convert(lane_dtype<T>, dtype_of(view))) {}

    /// Whether place() is in the result itself.
    bool as_it_is() const noexcept { return as_it_is_; }
    /// Where elements from `begin` on are to be put: there or, if they have to be converted, to `room`.
    T* place(int64_t begin, T* room) const noexcept { return as_it_is_ ? reinterpret_cast<T*>(data_) + begin : room; }
    /// Brings what was put to place() to the result.
    void finish(int64_t begin, int64_t n, const T* room) const {
        if (!as_it_is_) convert_(room, 1, data_ + begin * size_, 1, n);
    }

private:
    char* const data_;
    const int64_t size_;
    const bool as_it_is_;
    const ConvertFn convert_;
};

/// All elements of a small operand, contiguous; null for one that was left out.
template <class T>
class LaneArray {
public:
    explicit LaneArray(const View* view) {
        if (!view) return;
        const LaneReader<T> reader(*view);
        const int64_t n = reader.count();
        room_ = std::make_unique<Scratch>(static_cast<size_t>(n) * sizeof(T));
        data_ = reader.read(0, n, room_->template as<T>());
    }
    const T* data() const noexcept { return data_; }
    T at(int64_t i, T without) const noexcept { return data_ ? data_[i] : without; }

private:
    std::unique_ptr<Scratch> room_;
    const T* data_ = nullptr;
};

}  // namespace clikart::cpu
