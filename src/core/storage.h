// The memory behind one or more tensors.
#pragma once

#include <atomic>
#include <map>
#include <vector>

#include "base/object.h"
#include "core/device.h"
#include "core/history.h"

namespace clikart {

/// Memory that belongs to somebody else: what to call when nobody here needs it any more, once, on any thread.
struct Lender {
    void (*give_back)(void* context) = nullptr;
    void* context = nullptr;
};

class Storage;

/// What a deferred call knows of the storage that it writes; null when that ended.  Guarded by the submission lock.
struct DeferredWrite {
    Storage* storage = nullptr;
    size_t position = 0;  // on the storage's list
};

/// Three kinds: from the pool, taken when the operator that writes it starts (`materialize`) and returned with the last
/// reference; borrowed; and none at all (device meta).
/// Memory that the host can see, borrowed or shown to it (`show`), is known by its address: what overlaps has one history.
class Storage final : public Object {
public:
    /// From the pool.  `bytes` may be unknown (-1) until it is materialized.
    Storage(int64_t bytes, Device device) noexcept : Object(ObjectKind::Storage), bytes_(bytes), device_(device) {}
    /// Borrowed: [data, data + bytes).
    static Ref<Storage> borrow(void* data, int64_t bytes, Device device, bool writable);
    /// From now on the memory is given back at the end.
    void set_lender(const Lender& lender) noexcept { lender_ = lender; }
    /// Called before the host gets the address of settled memory.  Throws for want of memory.
    void show();
    ~Storage() override;

    int64_t bytes() const noexcept { return bytes_; }
    Device device() const noexcept { return device_; }
    /// Null until materialized.
    void* data() const noexcept { return data_; }
    /// Takes memory from the pool unless there is some.  Throws MemoryError.  Called by the writer alone.
    void materialize();
    /// The same for a size that was unknown until now.
    void materialize(int64_t bytes) {
        bytes_ = bytes;
        materialize();
    }

    /// Counts the calls in place that are over; so what was made of the content is known to be old.
    uint64_t version() const noexcept { return version_.load(std::memory_order_relaxed); }
    void note_write() noexcept { version_.fetch_add(1, std::memory_order_relaxed); }
    /// Whether only calls change the content: not so where the host sees the memory, unless it is known to stay.
    bool changes_by_calls_alone() const noexcept { return !host_visible() || stays_; }
    /// Said of borrowed memory that nobody writes.
    void set_stays() noexcept { stays_ = true; }

    bool host_visible() const noexcept { return host_visible_.load(std::memory_order_acquire); }
    /// Whether all live memory that shares this history lies in [begin, end).  Under the submission lock.
    bool shared_only_within(const char* begin, const char* end) const noexcept;
    bool writable() const noexcept { return writable_; }
    /// No memory now and never: only shape and dtype matter.
    bool is_meta() const noexcept { return device_.type == DeviceType::Meta; }

    /// Guarded by the submission lock.
    History& history() noexcept { return shared_ ? *shared_ : own_; }
    // Deferred calls (ops/deferred.h).  The storage keeps those alive that write it, as long as anybody but deferred calls
    // can reach it; or a value that is computed from its own old one would keep itself alive for ever.
    /// Whether calls that touch this memory may be deferred; a hint that needs no lock.  True may mean no.
    bool may_have_deferred() const noexcept { return deferred_.load(std::memory_order_acquire) || host_visible(); }
    void note_deferred() noexcept { deferred_.store(true, std::memory_order_release); }
    /// The references that deferred calls have, each through a tensor of its own.  Guarded by the submission lock.
    int64_t deferred_references = 0;
    /// Those that write this.  Guarded by the submission lock.
    std::vector<DeferredWrite*> deferred_writers;
    /// Takes over the reference of a tensor that ends.
    static void let_go(Ref<Storage> storage) noexcept {
        if (storage->deferred_.load(std::memory_order_acquire)) let_deferred_go(storage);
    }

private:
    static void let_deferred_go(Ref<Storage>& storage) noexcept;
    static void join(Storage& storage, uintptr_t begin, uintptr_t end);

    void* data_ = nullptr;
    int64_t bytes_;
    const Device device_;
    bool borrowed_ = false;
    std::atomic<bool> host_visible_{false};
    bool writable_ = true;
    bool stays_ = false;
    std::atomic<uint64_t> version_{0};
    std::atomic<bool> deferred_{false};
    History own_;
    std::multimap<uintptr_t, Storage*>::iterator place_;  // among the visible memory, while shared_ is there
    Ref<SharedHistory> shared_;                           // of memory the host can see; guarded by the submission lock
    Lender lender_;
};

}  // namespace clikart
