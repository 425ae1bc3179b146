// Reference-counted objects and the pointer that holds them.
// Everything that crosses the C ABI as a handle is an Object, and says which kind it is, so that a call given the
// wrong kind of handle can refuse it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace clikart {

enum class ObjectKind : uint32_t { Tensor = 1, Storage, Timeline, Error, Graph, Node, Archive, Origin, History, Deferred, Generator, Region };

class Object {
public:
    explicit Object(ObjectKind kind) noexcept : object_kind_(kind) {}
    Object(const Object&) = delete;
    Object& operator=(const Object&) = delete;

    ObjectKind object_kind() const noexcept { return object_kind_; }
    void retain() const noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
    /// Adds a reference unless the last one is gone and the object only waits for its end.  For whoever knows an object
    /// by a pointer that does not keep it alive.
    bool retain_if_alive() const noexcept {
        for (uint32_t count = count_.load(std::memory_order_relaxed); count != 0;) {
            if (count_.compare_exchange_weak(count, count + 1, std::memory_order_acquire, std::memory_order_relaxed)) return true;
        }
        return false;
    }
    void release() const noexcept {
        if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
    }

    /// Drops a reference unless it is the last; true when it did.
    bool release_unless_last() const noexcept {
        for (uint32_t count = count_.load(std::memory_order_relaxed); count > 1;) {
            if (count_.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel, std::memory_order_relaxed)) return true;
        }
        return false;
    }

protected:
    /// Exact only while nobody else can add or drop references.
    uint32_t references() const noexcept { return count_.load(std::memory_order_acquire); }
    virtual ~Object() = default;
    /// What happens when the last reference is gone.
    virtual void destroy() const noexcept { delete this; }

private:
    const ObjectKind object_kind_;
    mutable std::atomic<uint32_t> count_{1};
};

/// An object that may hold the last reference to another of its kind, and so on for any length.  Such a chain is
/// released in a loop: one stack frame for each would overflow on a long one.
class Chained : public Object {
protected:
    using Object::Object;
    void destroy() const noexcept final;

private:
    mutable const Chained* next_released_ = nullptr;
};

template <class T>
class Ref {
public:
    Ref() noexcept = default;
    Ref(std::nullptr_t) noexcept {}
    Ref(const Ref& other) noexcept : pointer_(other.pointer_) {
        if (pointer_) pointer_->retain();
    }
    Ref(Ref&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
    template <class U>
        requires std::is_convertible_v<U*, T*>
    Ref(Ref<U> other) noexcept : pointer_(other.leak()) {}
    ~Ref() {
        if (pointer_) pointer_->release();
    }
    Ref& operator=(Ref other) noexcept {
        std::swap(pointer_, other.pointer_);
        return *this;
    }

    /// Takes over a reference that the caller owns.
    static Ref adopt(T* pointer) noexcept {
        Ref ref;
        ref.pointer_ = pointer;
        return ref;
    }
    /// Adds a reference of its own.
    static Ref share(T* pointer) noexcept {
        if (pointer) pointer->retain();
        return adopt(pointer);
    }
    /// Hands the reference to the caller.
    [[nodiscard]] T* leak() noexcept { return std::exchange(pointer_, nullptr); }

    T* get() const noexcept { return pointer_; }
    T* operator->() const noexcept { return pointer_; }
    T& operator*() const noexcept { return *pointer_; }
    explicit operator bool() const noexcept { return pointer_ != nullptr; }
    friend bool operator==(const Ref& a, const Ref& b) noexcept { return a.pointer_ == b.pointer_; }

private:
    T* pointer_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
    return Ref<T>::adopt(new T(std::forward<Args>(args)...));
}

}  // namespace clikart
