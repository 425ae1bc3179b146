#include "core/storage.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/memory.h"

namespace clikart {

namespace {

/// The live borrows by address.  Guarded by the submission lock.
struct Borrows {
    std::multimap<uintptr_t, Storage*> by_address;
    size_t longest = 0;  // bytes of the longest ever: how far before an address one that reaches it may begin
};
Borrows& borrows() {
    static auto& live = *new Borrows;
    return live;
}

template <class List>
void add_all(List& to, List& from) {
    for (auto& entry : from) to.push_back(entry);
}

void add_history(History& to, History& from) {
    add_all(to.writes, from.writes);
    add_all(to.reads, from.reads);
    if (from.deferred) {
        add_all(to.deferred_use().writes, from.deferred->writes);
        add_all(to.deferred_use().reads, from.deferred->reads);
    }
    if (!to.error) to.error = from.error;
}

/// The deferred writes of a history that nobody can reach any more.
void take_deferred(History& history, SmallVector<Ref<Object>, 1>& taken) {
    if (!history.deferred) return;
    add_all(taken, history.deferred->writes);
    history.deferred->writes.clear();
}

}  // namespace

/// Gives the storage one history with all visible memory that it overlaps, and with its own so far.
void Storage::join(Storage& storage, uintptr_t begin, uintptr_t end) {
    auto history = make_ref<SharedHistory>();
    std::vector<Ref<SharedHistory>> joined;  // released after the lock
    std::lock_guard lock(submission());
    if (storage.shared_) return;  // another thread was faster
    Borrows& live = borrows();
    live.longest = std::max(live.longest, static_cast<size_t>(end - begin));
    const auto first = live.by_address.lower_bound(begin - std::min<uintptr_t>(begin, live.longest));
    for (auto it = first; it != live.by_address.end() && it->first < end; ++it) {
        if (it->first + static_cast<size_t>(it->second->bytes_) <= begin) continue;
        if (std::find(joined.begin(), joined.end(), it->second->shared_) == joined.end()) joined.push_back(it->second->shared_);
    }
    add_history(*history, storage.own_);
    for (const auto& other : joined) add_history(*history, *other);
    live.by_address.emplace(begin, &storage);
    // From here on nothing throws.  Nobody holds on to a history: each look starts from a storage.
    if (!joined.empty()) {
        for (const auto& entry : live.by_address) {
            if (std::find(joined.begin(), joined.end(), entry.second->shared_) != joined.end()) entry.second->shared_ = history;
        }
    }
    storage.own_.writes.clear();
    storage.own_.reads.clear();
    storage.own_.deferred.reset();
    storage.shared_ = std::move(history);
    storage.host_visible_.store(true, std::memory_order_release);
}

Ref<Storage> Storage::borrow(void* data, int64_t bytes, Device device, bool writable) {
    auto storage = make_ref<Storage>(bytes, device);
    const auto begin = reinterpret_cast<uintptr_t>(data);
    join(*storage, begin, begin + static_cast<size_t>(bytes));
    storage->data_ = data;  // only now: what is not borrowed yet must not be given to the pool
    storage->borrowed_ = true;
    storage->writable_ = writable;
    return storage;
}

void Storage::show() {
    if (host_visible() || !data_) return;
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    join(*this, begin, begin + static_cast<size_t>(bytes_));
}

bool Storage::shared_only_within(const char* begin, const char* end) const noexcept {
    if (!shared_) return true;
    const auto low = reinterpret_cast<uintptr_t>(begin), high = reinterpret_cast<uintptr_t>(end);
    for (const auto& [address, other] : borrows().by_address) {
        if (other->shared_ == shared_ && (address < low || address + static_cast<size_t>(other->bytes_) > high)) return false;
    }
    return true;
}

Storage::~Storage() {
    SmallVector<Ref<Object>, 1> deferred;  // released after the lock
    if (shared_ || deferred_.load(std::memory_order_acquire)) {
        std::lock_guard lock(submission());
        for (Storage** link : deferred_links) *link = nullptr;
        if (shared_) {
            auto& map = borrows().by_address;
            auto it = map.lower_bound(reinterpret_cast<uintptr_t>(data_));
            while (it != map.end() && it->second != this) ++it;
            if (it != map.end()) map.erase(it);
        }
        take_deferred(own_, deferred);
    }
    if (borrowed_) {
        if (lender_.give_back) lender_.give_back(lender_.context);
    } else if (data_) {
        deallocate(data_, static_cast<size_t>(bytes_));
    }
}

void Storage::let_deferred_go(Ref<Storage>& storage) noexcept {
    SmallVector<Ref<Object>, 1> deferred;  // released after the lock
    std::lock_guard lock(submission());
    // Dropped under the lock: of two that end at once, the second sees that it is alone.
    if (!storage->release_unless_last()) return;
    Storage& left = *storage.leak();
    if (static_cast<int64_t>(left.references()) != left.deferred_references) return;
    take_deferred(left.history(), deferred);  // of memory the host can see there is none: writes to that are not deferred
}

void Storage::materialize() {
    if (!data_) data_ = allocate(static_cast<size_t>(bytes_));
}

}  // namespace clikart
