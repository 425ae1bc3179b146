// Streams: FIFO timelines of operator calls, run one at a time each, by whichever worker is free.
//
// Order.  Submission takes one process-wide lock, under which the hazards of every storage the call touches are read
// and replaced and the ticket is drawn, so that dependencies only ever point to earlier submissions.  Work whose
// dependencies on other streams are open does not occupy a worker: its stream is run again when they settle.
//
// Running on the caller.  A call cheap enough to cost less than waking a worker runs at once, on the calling thread,
// when its stream is idle and its hazards are settled.
//
// docs/execution.md has the whole model; the numbers I1 to I12 there are those of the comments here.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/small_vector.h"
#include "core/tensor.h"
#include "core/timeline.h"
#include "exec/callbacks.h"
#include "exec/thread_pool.h"

namespace clikart {

/// One operator call: what it reads, what it writes, and how.
class Work {
public:
    virtual ~Work() = default;
    /// Computes, with the inputs settled and free of errors, and the outputs' memory taken where its size is known.
    virtual void run() = 0;
    /// Whom a failure names.
    virtual const char* name() const noexcept = 0;

    SmallVector<Ref<Tensor>, 4> inputs;
    SmallVector<Ref<Tensor>, 2> outputs;
    /// What one core needs for it, in nanoseconds, roughly.
    double cost = 0;
    /// The outputs existed before, and others may know them.
    bool in_place = false;
    /// It may make a part of its results: it runs whatever spoiled its inputs, looks at that itself, and says what is spoiled then.
    bool in_parts = false;
    /// Of work in parts that ran, as far as it came: whether result `i` is spoiled, and by what was there before.
    virtual bool spoiled(size_t) const noexcept { return true; }
    virtual Ref<Error> inherited() const noexcept { return nullptr; }
    /// Whether it can be run again after it lacked memory, and the largest block it takes beside its outputs.
    virtual bool can_run_again() const noexcept { return !in_place; }
    virtual int64_t bytes_beside() const noexcept { return 0; }
    /// How a failure of the work is told.
    virtual std::string told(const std::string& failure) const;
    /// Where the call was made, for failures that come late; may be null.
    Ref<Origin> origin;
    /// The same, asked on the calling thread when the work is queued or fails there.
    virtual Ref<Origin> place() const { return nullptr; }

private:
    friend class Stream;  // while it is queued or runs:
    Work* next_ = nullptr;
    uint64_t ticket_ = 0;
    uint64_t submission_ = 0;           // counts the works of all streams
    int64_t bytes_ = 0;                 // of its operands
    std::vector<Ticket> dependencies_;  // on other streams
    Ref<Error> spoiled_;                // by a failure of what it depends on
    bool cures_ = false;                // overwrites the whole of something spoiled
};

/// Whether the tensor, no two of whose elements share memory, reaches all that its history is about.  Under the submission lock.
bool covers_all(const Tensor& tensor) noexcept;

class Stream final : public Timeline, private Runnable {
public:
    explicit Stream(Device device, bool is_default = false) : device_(device), is_default_(is_default) {}
    /// The calling thread's stream for unplaced work; lives as long as work or a tensor refers to it.  Throws ClikaRTError
    /// while the thread's own objects are being destroyed.
    static const Ref<Stream>& lane();
    /// The device's synchronous stream: each call on it is over before it returns.
    static const Ref<Stream>& default_stream(Device device);

    Device device() const noexcept { return device_; }
    bool is_default() const noexcept { return is_default_; }

    /// Takes the work; it runs after all submitted before it on this stream and all it depends on.
    /// With `at_once` it has run, on the calling thread where possible, when this returns.
    /// True when it is still to run.
    template <class W>
    bool submit(W&& work, bool at_once);
    /// The same for work whose caller holds the submission lock; never runs it, never waits.  On an exception the work is
    /// not taken.  Call ready_to_enqueue() before taking the lock.
    void enqueue_locked(std::unique_ptr<Work>& work);
    static void ready_to_enqueue();
    /// Waits a while when too much is unfinished on this stream.
    void pace();

    /// True when all that was submitted is over.
    bool idle() const noexcept;
    /// Blocks until all that was submitted before the call is over, or for at most `timeout_ns` nanoseconds (negative:
    /// without end); false when it is not over then.  Then throws the first failure of its work that nobody was told of.
    bool synchronize(int64_t timeout_ns = -1);
    /// The same for all streams of a device.
    static bool synchronize(Device device, int64_t timeout_ns);
    /// Blocks until the ticket is settled, or until the timeout; false when it is still open then.
    static bool wait(const Ticket& ticket, int64_t timeout_ns = -1);

    /// What is under way with a storage.
    struct State {
        SmallVector<Ticket, 1> open_writes;  // that are not over
        Ref<Error> error;                    // that spoiled the value; to be looked at when no write is open
    };
    static void look_at(Storage& storage, State& state);
    /// The tickets of those that read the storage now.
    static std::vector<Ticket> open_reads(Storage& storage);
    /// Calls back when all writes of the storage that were submitted before are over: on the callback pool, or here and
    /// now.  Takes over the callback, unless it throws.
    static void call_when_settled(Storage& storage, std::unique_ptr<Callback>& callback);

    // For fork, in this order: no kernel runs between the first and one of the others.
    static void before_fork() noexcept;
    static void after_fork_parent() noexcept;
    static void after_fork_child() noexcept;

private:
    friend class HostRead;
    ~Stream() override = default;

    static void require_open(const Work& work);
    bool start_on_caller(Work& work, bool at_once, uint64_t& ticket);
    void finish_on_caller(uint64_t ticket, const Ref<Error>& failed) noexcept;
    Ref<Error> execute(Work& work, bool on_caller) noexcept;
    void run() noexcept override;
    void run_until(uint64_t last, const Deadline& deadline) noexcept;
    bool head_is_ready() noexcept;
    void schedule(bool at_front = false) noexcept;
    bool next_fits(const Deadline& deadline) noexcept;
    void mark_busy() noexcept;
    void mark_idle() noexcept;
    static void resume_all() noexcept;
    void settle(uint64_t ticket) noexcept;
    void release_waiters(uint64_t ticket) noexcept;
    static void await_next(Callback* callback) noexcept;
    bool wait_for(uint64_t value, int64_t timeout_ns = -1);
    void note_untold(const Ref<Error>& error) noexcept;
    template <class OfThis>
    static void throw_untold(OfThis&& of_this);

    static inline std::atomic<uint64_t> next_id_{1};
    const uint64_t id_ = next_id_.fetch_add(1, std::memory_order_relaxed);
    const Device device_;
    const bool is_default_;
    std::atomic<int> sleepers_{0};  // threads asleep in wait_for
    Crew crew_;                     // those awake there

    // Guarded by the submission lock.
    uint64_t last_ticket_ = 0;
    int64_t bytes_in_flight_ = 0;
    bool running_ = false;  // the token: someone runs, or is queued to run, this stream
    Work* first_ = nullptr;
    Work* last_ = nullptr;
    // A stream waits for at most one other at a time: the first open dependency of its first work.
    bool waiting_ = false;
    uint64_t awaited_ = 0;
    Stream* next_waiter_ = nullptr;   // among those that wait for the same stream
    Stream* first_waiter_ = nullptr;  // of those that wait for this one
    Callback* first_callback_ = nullptr;
    bool held_by_fork_ = false;  // to be scheduled when it is over
    bool busy_ = false;          // on the list of those with something queued or running
    Stream* next_busy_ = nullptr;
    Stream* previous_busy_ = nullptr;
};

template <class W>
bool Stream::submit(W&& work, bool at_once) {
    at_once |= is_default_;
    uint64_t ticket;
    if (start_on_caller(work, at_once, ticket)) {
        finish_on_caller(ticket, execute(work, true));
        return false;
    }
    pace();
    ready_to_enqueue();
    std::unique_ptr<Work> queued = std::make_unique<std::remove_cvref_t<W>>(std::move(work));
    queued->origin = queued->place();
    {
        std::lock_guard lock(submission());
        enqueue_locked(queued);
        ticket = last_ticket_;
    }
    if (at_once) wait_for(ticket);
    return !at_once;
}

}  // namespace clikart
