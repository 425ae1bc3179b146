// Streams: FIFO timelines of operator calls, run one at a time each, by whichever worker is free.
//
// Order.  Submission takes one process-wide lock, under which the hazards of every storage the call touches are read
// and replaced and the ticket is drawn, so that dependencies only ever point to earlier submissions.  Work whose
// dependencies on other streams are open does not occupy a worker: its stream is run again when they settle.
//
// Running on the caller.  A call cheap enough to cost less than waking a worker runs at once, on the calling thread,
// when its stream is idle and its hazards are settled.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "base/small_vector.h"
#include "core/tensor.h"
#include "core/timeline.h"
#include "exec/thread_pool.h"

namespace clikart {

/// One operator call: what it reads, what it writes, and how.
class Work {
public:
    virtual ~Work() = default;
    /// Computes, with the inputs settled and free of errors, and the outputs' memory taken.
    virtual void run() = 0;
    /// Whom a failure names.
    virtual const char* name() const noexcept = 0;

    SmallVector<Ref<Tensor>, 4> inputs;
    SmallVector<Ref<Tensor>, 2> outputs;
    /// What one core needs for it, in nanoseconds, roughly.
    double cost = 0;
    /// The outputs existed before, and others may know them.
    bool in_place = false;

private:
    friend class Stream;  // while it is queued:
    Work* next_ = nullptr;
    uint64_t ticket_ = 0;
    std::vector<Ticket> dependencies_;  // on other streams
};

class Stream final : public Timeline, private Runnable {
public:
    explicit Stream(Device device) : device_(device) {}
    /// The calling thread's stream for unplaced work; lives as long as work or a tensor refers to it.  Throws ClikaRTError
    /// while the thread's own objects are being destroyed.
    static const Ref<Stream>& lane();

    Device device() const noexcept { return device_; }

    /// Takes the work; it runs after all submitted before it on this stream and all it depends on.
    /// With `at_once` it has run, on the calling thread where possible, when this returns.
    template <class W>
    void submit(W&& work, bool at_once);

    /// True when all that was submitted is over.
    bool idle() const noexcept;
    /// Blocks until all that was submitted before the call is over.
    void synchronize();
    /// Blocks until the ticket is settled, or for at most `timeout_ns` nanoseconds (negative: without end); false when
    /// it is still open then.
    static bool wait(const Ticket& ticket, int64_t timeout_ns = -1);
    /// The last write of a storage; empty when that was long ago.
    static Ticket last_write(const Storage& storage);
    /// The tickets of those that read the storage now.
    static std::vector<Ticket> open_reads(const Storage& storage);
    /// Blocks until a moment when no work is under way anywhere, on callers included.
    static void drain_all();
    /// From now on submit() throws ClikaRTError, until every close_gate() was followed by an open_gate().
    static void close_gate() noexcept;
    static void open_gate() noexcept;

private:
    ~Stream() override = default;

    static void require_open(const Work& work);
    bool start_on_caller(Work& work, bool at_once, uint64_t& ticket);
    void finish_on_caller(uint64_t ticket) noexcept;
    void pace();
    uint64_t enqueue(std::unique_ptr<Work> work);
    static void execute(Work& work) noexcept;
    void run() noexcept override;
    bool head_is_ready() noexcept;
    void schedule() noexcept;
    void settle(uint64_t ticket) noexcept;
    void release_waiters(uint64_t ticket) noexcept;
    bool wait_for(uint64_t value, int64_t timeout_ns = -1);

    const Device device_;
    std::atomic<int> sleepers_{0};  // threads inside wait_for
    std::mutex sleep_mutex_;        // guards nothing: pairs with settled_
    std::condition_variable settled_;

    // Guarded by the submission lock.
    uint64_t last_ticket_ = 0;
    bool running_ = false;  // the token: someone runs, or is queued to run, this stream
    Work* first_ = nullptr;
    Work* last_ = nullptr;
    // A stream waits for at most one other at a time: the first open dependency of its first work.
    bool waiting_ = false;
    uint64_t awaited_ = 0;
    Stream* next_waiter_ = nullptr;   // among those that wait for the same stream
    Stream* first_waiter_ = nullptr;  // of those that wait for this one
};

template <class W>
void Stream::submit(W&& work, bool at_once) {
    uint64_t ticket;
    if (start_on_caller(work, at_once, ticket)) {
        execute(work);
        finish_on_caller(ticket);
        return;
    }
    pace();
    ticket = enqueue(std::make_unique<std::remove_cvref_t<W>>(std::move(work)));
    if (at_once) wait_for(ticket);
}

}  // namespace clikart
