#include "core/storage.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <vector>

#include "core/memory.h"

namespace clikart {

namespace {

/// The live memory that the host can see, by address, in classes of about one length: so that what may reach an address
/// is found among few.  Guarded by the submission lock.
class VisibleMemory {
public:
    using Map = std::multimap<uintptr_t, Storage*>;
    static VisibleMemory& instance() {
        static auto& live = *new VisibleMemory;
        return live;
    }
    Map& like(int64_t bytes) noexcept { return classes_[static_cast<size_t>(std::bit_width(static_cast<uint64_t>(bytes)))]; }
    template <class F>
    void for_each_overlap(uintptr_t begin, uintptr_t end, F&& f) {
        for (size_t c = 0; c < classes_.size(); ++c) {
            const uintptr_t longest = c == 0 ? 0 : (uintptr_t{1} << (c - 1)) + ((uintptr_t{1} << (c - 1)) - 1);
            for (auto it = classes_[c].lower_bound(begin - std::min(begin, longest)); it != classes_[c].end() && it->first < end; ++it) {
                if (it->first + static_cast<uintptr_t>(it->second->bytes()) > begin) f(*it->second);
            }
        }
    }
    template <class F>
    void for_each(F&& f) {
        for (auto& map : classes_) {
            for (auto& [address, storage] : map) f(address, *storage);
        }
    }

private:
    std::array<Map, 64> classes_;  // by the number of bits of the length, which is below 2^63
};

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
    VisibleMemory& visible = VisibleMemory::instance();
    visible.for_each_overlap(begin, end, [&](const Storage& other) {
        if (std::find(joined.begin(), joined.end(), other.shared_) == joined.end()) joined.push_back(other.shared_);
    });
    if (joined.size() == 1) history = joined[0];  // then nothing has to be changed in the others
    if (joined.size() > 1) {
        for (const auto& other : joined) add_history(*history, *other);
    }
    add_history(*history, storage.own_);
    const auto place = visible.like(storage.bytes_).emplace(begin, &storage);
    // From here on nothing throws.  Nobody holds on to a history: each look starts from a storage.
    if (joined.size() > 1) {
        visible.for_each([&](uintptr_t, Storage& other) {
            if (other.shared_ && std::find(joined.begin(), joined.end(), other.shared_) != joined.end()) other.shared_ = history;
        });
    }
    storage.own_.writes.clear();
    storage.own_.reads.clear();
    storage.own_.deferred.reset();
    storage.place_ = place;
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
    bool within = true;
    VisibleMemory::instance().for_each([&](uintptr_t address, const Storage& other) {
        within &= other.shared_ != shared_ || (address >= low && address + static_cast<uintptr_t>(other.bytes_) <= high);
    });
    return within;
}

Storage::~Storage() {
    SmallVector<Ref<Object>, 1> deferred;  // released after the lock
    if (shared_ || deferred_.load(std::memory_order_acquire)) {
        std::lock_guard lock(submission());
        for (DeferredWrite* writer : deferred_writers) writer->storage = nullptr;
        if (shared_) VisibleMemory::instance().like(bytes_).erase(place_);
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
    if (!data_ && !borrowed_) data_ = allocate(static_cast<size_t>(bytes_));
}

}  // namespace clikart
