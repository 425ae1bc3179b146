#include "core/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <iterator>
#include <map>
#include <mutex>

#include "base/error.h"

namespace clikart {
namespace {

constexpr size_t kLargeBlock = size_t{1} << 20;     // from here on blocks are mapped; below, they come from malloc
constexpr size_t kHugePage = size_t{2} << 20;       // granularity of mapped blocks
constexpr size_t kThreadCached = size_t{64} << 10;  // largest class that threads cache
constexpr uint32_t kThreadCacheDepth = 16;          // blocks per class and thread: a burst of temporaries of one operator chain

// Size classes: four steps per power of two from 64 bytes up, so that at most a quarter of a block is unused.
constexpr size_t class_of(size_t bytes) noexcept {
    if (bytes <= 64) return 0;
    const int power = std::bit_width(bytes - 1) - 1;  // 2^power < bytes <= 2^(power+1)
    return static_cast<size_t>((power - 6) * 4) + ((bytes - 1) >> (power - 2)) - 3;
}
constexpr size_t class_size(size_t index) noexcept {
    if (index == 0) return 64;
    const size_t step = (index - 1) % 4, power = (index - 1) / 4 + 6;
    return ((size_t{4} + step + 1) << power) / 4;
}
static_assert(class_size(class_of(65)) == 80 && class_size(class_of(80)) == 80 && class_size(class_of(128)) == 128);
static_assert(class_size(class_of(129)) == 160 && class_size(class_of(kLargeBlock)) == kLargeBlock);
// A class size that is no multiple of 64 is rounded up when it is allocated; the class index stays its identity.
constexpr size_t kClasses = class_of(kLargeBlock) + 1;
constexpr size_t kThreadClasses = class_of(kThreadCached) + 1;

constexpr size_t round_up(size_t bytes, size_t to) noexcept {
    return (bytes + to - 1) / to * to;
}

/// Mapped bytes of a large block: whole huge pages, from 16 MiB on eight steps per power of two, so that blocks of about
/// one size can stand in for each other.  What is not touched costs no memory.
constexpr size_t large_size(size_t bytes) noexcept {
    const size_t step = std::max(kHugePage, std::bit_floor(bytes) / 8);
    return round_up(bytes, step);
}

struct FreeBlock {
    FreeBlock* next;
};

size_t physical_memory() noexcept {
    static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}

constexpr int64_t kNoLimit = INT64_MAX;

std::atomic<int64_t> in_use{0};
std::atomic<int64_t> most_in_use{0};
std::atomic<int64_t> limit{kNoLimit};

/// Counts bytes that are about to be handed out, unless they would exceed the limit.
bool count(int64_t bytes) noexcept {
    int64_t now = in_use.load(std::memory_order_relaxed);
    do {
        if (bytes > limit.load(std::memory_order_relaxed) - now) return false;
    } while (!in_use.compare_exchange_weak(now, now + bytes, std::memory_order_relaxed));
    return true;
}

void note_peak() noexcept {
    const int64_t now = in_use.load(std::memory_order_relaxed);
    int64_t peak = most_in_use.load(std::memory_order_relaxed);
    while (now > peak && !most_in_use.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
}

class Pool {
public:
    /// Null when there is none.
    void* allocate(size_t bytes) noexcept {
        // What waits for reuse counts towards a limit too, or the process would hold more than it.
        if (const int64_t most = limit.load(std::memory_order_relaxed); most != kNoLimit && in_use.load(std::memory_order_relaxed) > most - cached()) trim();
        void* block = bytes < kLargeBlock ? take_small(class_of(bytes)) : take_large(large_size(bytes));
        if (!block) {
            trim();
            block = bytes < kLargeBlock ? take_small(class_of(bytes)) : take_large(large_size(bytes));
        }
        return block;
    }
    void give_small(void* block, size_t index) noexcept {
        std::lock_guard lock(mutex_);
        auto* free = static_cast<FreeBlock*>(block);
        free->next = small_[index];
        small_[index] = free;
        cached_ += static_cast<int64_t>(class_size(index));
    }
    void give_large(void* block, size_t bytes) noexcept {
        std::lock_guard lock(mutex_);
        // No more than a quarter of the machine's memory is held back from other programs; what has waited makes room.
        const size_t limit = physical_memory() / 4;
        while (!large_.empty() && static_cast<size_t>(cached_) + bytes > limit) {
            const auto largest = std::prev(large_.end());
            munmap(largest->second, largest->first);
            cached_ -= static_cast<int64_t>(largest->first);
            large_.erase(largest);
        }
        if (static_cast<size_t>(cached_) + bytes <= limit) {
            try {
                large_.emplace(bytes, block);
                cached_ += static_cast<int64_t>(bytes);
                return;
            } catch (...) {  // no memory for the map's node: unmap instead
            }
        }
        munmap(block, bytes);
    }
    void trim() noexcept {
        std::lock_guard lock(mutex_);
        for (FreeBlock*& list : small_) {
            while (list) std::free(std::exchange(list, list->next));
        }
        for (const auto& [bytes, block] : large_) munmap(block, bytes);
        large_.clear();
        cached_ = 0;
    }
    int64_t cached() noexcept {
        std::lock_guard lock(mutex_);
        return cached_;
    }

    void lock() noexcept { mutex_.lock(); }
    void unlock() noexcept { mutex_.unlock(); }

private:
    void* take_small(size_t index) noexcept {
        {
            std::lock_guard lock(mutex_);
            if (FreeBlock* block = small_[index]) {
                small_[index] = block->next;
                cached_ -= static_cast<int64_t>(class_size(index));
                return block;
            }
        }
        return std::aligned_alloc(kMemoryAlignment, round_up(class_size(index), kMemoryAlignment));
    }
    void* take_large(size_t bytes) noexcept {
        {
            std::lock_guard lock(mutex_);
            if (auto it = large_.find(bytes); it != large_.end()) {
                void* block = it->second;
                large_.erase(it);
                cached_ -= static_cast<int64_t>(bytes);
                return block;
            }
        }
        if (bytes > physical_memory()) return nullptr;  // overcommit might say yes and the first write would kill us
        // One huge page more than needed, then the ends are given back, which leaves the block on a 2 MiB border.
        char* raw = static_cast<char*>(mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (raw == MAP_FAILED) return nullptr;
        char* block = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(raw), kHugePage));
        if (block != raw) munmap(raw, static_cast<size_t>(block - raw));
        if (const size_t tail = static_cast<size_t>(raw + kHugePage - block)) munmap(block + bytes, tail);
        madvise(block, bytes, MADV_HUGEPAGE);
        return block;
    }

    std::mutex mutex_;  // guards all below
    std::array<FreeBlock*, kClasses> small_{};
    std::multimap<size_t, void*> large_;
    int64_t cached_ = 0;
};

// Never destroyed: tensors may be released by static destructors of the program.
Pool& pool() noexcept {
    static Pool& instance = *new Pool;
    return instance;
}

// Outlives ThreadCache's destructor, so that a release during a thread's end goes to the pool instead.
thread_local bool thread_cache_gone = false;

struct ThreadCache {
    std::array<FreeBlock*, kThreadClasses> lists{};
    std::array<uint32_t, kThreadClasses> depth{};
    ~ThreadCache() {
        thread_cache_gone = true;
        for (size_t i = 0; i < kThreadClasses; ++i) {
            while (lists[i]) pool().give_small(std::exchange(lists[i], lists[i]->next), i);
        }
    }
};
thread_local ThreadCache thread_cache;

}  // namespace

void* allocate(size_t bytes) {
    if (bytes > 0 && !count(static_cast<int64_t>(bytes))) {
        const MemoryUse use = memory_use();
        fail(ErrorKind::Memory, "out of memory: {} bytes asked for, {} of the limit of {} in use", bytes, use.current, use.limit);
    }
    const size_t index = class_of(bytes);
    if (index < kThreadClasses && !thread_cache_gone) {
        ThreadCache& cache = thread_cache;
        if (FreeBlock* cached = cache.lists[index]) {
            cache.lists[index] = cached->next;
            --cache.depth[index];
            note_peak();
            return cached;
        }
    }
    void* const block = pool().allocate(bytes);
    if (!block) {
        in_use.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
        fail(ErrorKind::Memory, "out of memory: {} bytes asked for, {} in use", bytes, memory_use().current);
    }
    note_peak();
    return block;
}

void deallocate(void* block, size_t bytes) noexcept {
    if (!block) return;
    in_use.fetch_sub(static_cast<int64_t>(bytes), std::memory_order_relaxed);
    const size_t index = class_of(bytes);
    if (index < kThreadClasses && !thread_cache_gone) {
        ThreadCache& cache = thread_cache;
        if (cache.depth[index] < kThreadCacheDepth) {
            auto* free = static_cast<FreeBlock*>(block);
            free->next = cache.lists[index];
            cache.lists[index] = free;
            ++cache.depth[index];
            return;
        }
    }
    if (bytes < kLargeBlock) {
        pool().give_small(block, index);
    } else {
        pool().give_large(block, large_size(bytes));
    }
}

MemoryUse memory_use() noexcept {
    return {in_use.load(std::memory_order_relaxed), most_in_use.load(std::memory_order_relaxed), pool().cached(), limit.load(std::memory_order_relaxed)};
}

void set_memory_limit(int64_t bytes) noexcept {
    limit.store(bytes, std::memory_order_relaxed);
}

void reset_memory_peak() noexcept {
    most_in_use.store(in_use.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

int64_t largest_block() noexcept {
    return std::min(limit.load(std::memory_order_relaxed), static_cast<int64_t>(physical_memory()));
}

void lock_memory() noexcept {
    pool().lock();
}

void unlock_memory() noexcept {
    pool().unlock();
}

void trim_memory() noexcept {
    pool().trim();
}

}  // namespace clikart
