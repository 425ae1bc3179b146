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

/// The deferred writes of a history that no memory has any more.
void take_deferred(History& history, SmallVector<Ref<Object>, 1>& taken) {
    if (!history.deferred) return;
    add_all(taken, history.deferred->writes);
    history.deferred->writes.clear();
}

}  // namespace

Ref<Storage> Storage::borrow(void* data, int64_t bytes, Device device, bool writable, const Lender& lender) {
    auto storage = make_ref<Storage>(bytes, device);
    storage->data_ = data;
    storage->borrowed_ = true;
    storage->writable_ = writable;
    auto history = make_ref<SharedHistory>();
    const auto begin = reinterpret_cast<uintptr_t>(data), end = begin + static_cast<size_t>(bytes);
    std::vector<Ref<SharedHistory>> joined;  // released after the lock
    {
        std::lock_guard lock(submission());
        Borrows& live = borrows();
        live.longest = std::max(live.longest, static_cast<size_t>(bytes));
        const auto first = live.by_address.lower_bound(begin - std::min<uintptr_t>(begin, live.longest));
        for (auto it = first; it != live.by_address.end() && it->first < end; ++it) {
            if (it->first + static_cast<size_t>(it->second->bytes_) <= begin) continue;
            if (std::find(joined.begin(), joined.end(), it->second->shared_) == joined.end()) joined.push_back(it->second->shared_);
        }
        for (const auto& other : joined) add_history(*history, *other);
        live.by_address.emplace(begin, storage.get());
        // From here on nothing throws.  The histories become one; nobody holds on to one, each look starts from a storage.
        if (!joined.empty()) {
            for (const auto& entry : live.by_address) {
                if (std::find(joined.begin(), joined.end(), entry.second->shared_) == joined.end()) continue;
                entry.second->shared_ = history;
                ++history->storages;
            }
        }
        ++history->storages;
        storage->shared_ = std::move(history);
    }
    storage->lender_ = lender;  // only now: the caller keeps what it lent when something was thrown
    return storage;
}

Storage::~Storage() {
    if (deferred_.load(std::memory_order_acquire)) {
        std::lock_guard lock(submission());
        for (Storage** link : deferred_links) *link = nullptr;
    }
    SmallVector<Ref<Object>, 1> deferred;  // released after the lock
    if (shared_) {
        {
            std::lock_guard lock(submission());
            auto it = borrows().by_address.lower_bound(reinterpret_cast<uintptr_t>(data_));
            while (it->second != this) ++it;
            borrows().by_address.erase(it);
            if (--shared_->storages == 0) take_deferred(*shared_, deferred);
        }
        if (lender_.give_back) lender_.give_back(lender_.context);
    } else {
        if (deferred_.load(std::memory_order_acquire)) {
            std::lock_guard lock(submission());
            take_deferred(own_, deferred);
        }
        if (data_) deallocate(data_, static_cast<size_t>(bytes_));
    }
}

void Storage::let_deferred_go(Ref<Storage>& storage) noexcept {
    SmallVector<Ref<Object>, 1> deferred;  // released after the lock
    std::lock_guard lock(submission());
    // Dropped under the lock: of two that end at once, the second sees that it is alone.
    if (!storage->release_unless_last()) return;
    Storage& left = *storage.leak();
    if (static_cast<int64_t>(left.references()) != left.deferred_references) return;
    if (left.shared_ && left.shared_->storages > 1) return;  // an overlapping one may still be reached
    take_deferred(left.history(), deferred);
}

void Storage::materialize() {
    if (!data_) data_ = allocate(static_cast<size_t>(bytes_));
}

}  // namespace clikart
