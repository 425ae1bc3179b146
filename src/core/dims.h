// Sizes or strides of a tensor: up to kMaxRank 64-bit integers, held inline.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace clikart {

/// The largest rank.  NumPy allows 64, deep-learning code seldom passes 8; 16 keeps a tensor's metadata in one small block.
inline constexpr int kMaxRank = 16;

class Dims {
public:
    Dims() noexcept = default;
    Dims(std::initializer_list<int64_t> values) : Dims(std::span(values.begin(), values.size())) {}
    /// Throws ValueError above kMaxRank.
    explicit Dims(std::span<const int64_t> values);
    Dims(const Dims& other) noexcept : rank_(other.rank_) { std::copy_n(other.values_, rank_, values_); }
    Dims& operator=(const Dims& other) noexcept {
        rank_ = other.rank_;
        std::copy_n(other.values_, rank_, values_);
        return *this;
    }

    int rank() const noexcept { return rank_; }
    int64_t operator[](int i) const noexcept { return values_[i]; }
    int64_t& operator[](int i) noexcept { return values_[i]; }
    const int64_t* data() const noexcept { return values_; }
    const int64_t* begin() const noexcept { return values_; }
    const int64_t* end() const noexcept { return values_ + rank_; }
    operator std::span<const int64_t>() const noexcept { return {values_, static_cast<size_t>(rank_)}; }
    void push_back(int64_t value);
    void resize(int rank, int64_t fill = 0);
    void erase(int i) noexcept {
        std::copy(values_ + i + 1, values_ + rank_, values_ + i);
        --rank_;
    }
    friend bool operator==(const Dims& a, const Dims& b) noexcept { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

private:
    int rank_ = 0;
    int64_t values_[kMaxRank];
};

/// "[2, 3]"
std::string to_string(const Dims& dims);

/// The product of the sizes.  Throws ValueError for a negative size and when the count, or its byte size at 8 bytes
/// an element, does not fit 63 bits.  `who` starts the message.
int64_t checked_numel(const Dims& shape, const char* who);
/// The product of sizes that were checked before.
int64_t numel(const Dims& shape) noexcept;

Dims contiguous_strides(const Dims& shape) noexcept;
/// Row-major without gaps; axes of size 1 may have any stride, and nothing is wrong with an empty tensor.
bool is_contiguous(const Dims& shape, const Dims& strides) noexcept;

/// Strides (elements) that give `to` over the same memory, if they exist.
bool reshape_strides(const Dims& shape, const Dims& strides, const Dims& to, Dims& out) noexcept;

}  // namespace clikart
