// The process-wide memory pool.
// Blocks are 64-byte aligned.  Small ones come from size classes with a cache per thread; large ones are mapped on
// 2 MiB borders, so that the kernel can back them with huge pages, and kept for reuse after release.
// Every function may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace clikart {

inline constexpr size_t kMemoryAlignment = 64;

struct MemoryUse {
    int64_t current;  ///< bytes handed out now
    int64_t peak;     ///< the most that was ever handed out at once
    int64_t cached;   ///< bytes kept for reuse, not counting the threads' small caches
    int64_t limit;    ///< the most that may be handed out at once; INT64_MAX: no limit
};

/// A block of at least `bytes` bytes (never null).  Throws MemoryError when the limit would be exceeded, when the system
/// has none, or has less memory than one block asks for.
void* allocate(size_t bytes);
/// Gives back a block, with the size it was asked for with.
void deallocate(void* block, size_t bytes) noexcept;

/// A block that is given back at its end.
class Block {
public:
    /// Throws as allocate().
    explicit Block(size_t bytes) : bytes_(bytes), data_(allocate(bytes)) {}
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    ~Block() { deallocate(data_, bytes_); }
    size_t bytes() const noexcept { return bytes_; }
    template <class T>
    T* as() const noexcept {
        return static_cast<T*>(data_);
    }

private:
    const size_t bytes_;
    void* const data_;
};

MemoryUse memory_use() noexcept;
/// Returns cached blocks to the system.
void trim_memory() noexcept;
/// From now on no more than `bytes` are handed out at once; what is handed out already stays.
void set_memory_limit(int64_t bytes) noexcept;
/// The peak counts from now on.
void reset_memory_peak() noexcept;

/// No block can ever be larger: the limit, or the machine's memory.
int64_t largest_block() noexcept;

/// The lock of the pool, for fork.
void lock_memory() noexcept;
void unlock_memory() noexcept;

}  // namespace clikart
