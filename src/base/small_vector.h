// A vector whose first N elements live inside it, for the short lists on the path of one operator call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>

namespace clikart {

template <class T, size_t N>
class SmallVector {
public:
    SmallVector() noexcept = default;
    SmallVector(const SmallVector&) = delete;
    SmallVector& operator=(const SmallVector&) = delete;
    ~SmallVector() {
        std::destroy_n(data_, size_);
        if (data_ != inline_data()) std::allocator<T>().deallocate(data_, capacity_);
    }

    template <class... Args>
    T& emplace_back(Args&&... args) {
        if (size_ == capacity_) grow(capacity_ * 2);
        T* slot = new (data_ + size_) T(std::forward<Args>(args)...);
        ++size_;
        return *slot;
    }
    void push_back(T value) { emplace_back(std::move(value)); }
    void reserve(size_t capacity) {
        if (capacity > capacity_) grow(std::max(capacity, 2 * capacity_));
    }
    /// Removes element i by moving the last one into its place.
    void remove_unordered(size_t i) noexcept {
        if (i + 1 != size_) data_[i] = std::move(data_[size_ - 1]);
        std::destroy_at(data_ + --size_);
    }
    void clear() noexcept {
        std::destroy_n(data_, size_);
        size_ = 0;
    }

    size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    T* data() noexcept { return data_; }
    const T* data() const noexcept { return data_; }
    T& operator[](size_t i) noexcept { return data_[i]; }
    const T& operator[](size_t i) const noexcept { return data_[i]; }
    T* begin() noexcept { return data_; }
    T* end() noexcept { return data_ + size_; }
    const T* begin() const noexcept { return data_; }
    const T* end() const noexcept { return data_ + size_; }

private:
    T* inline_data() noexcept { return std::launder(reinterpret_cast<T*>(buffer_)); }
    void grow(size_t capacity) {
        T* bigger = std::allocator<T>().allocate(capacity);
        std::uninitialized_move_n(data_, size_, bigger);
        std::destroy_n(data_, size_);
        if (data_ != inline_data()) std::allocator<T>().deallocate(data_, capacity_);
        data_ = bigger;
        capacity_ = capacity;
    }

    alignas(T) std::byte buffer_[N * sizeof(T)];
    T* data_ = reinterpret_cast<T*>(buffer_);
    size_t size_ = 0;
    size_t capacity_ = N;
};

}  // namespace clikart
