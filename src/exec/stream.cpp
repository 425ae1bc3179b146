#include "exec/stream.h"

#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "exec/shutdown.h"
#include "exec/spin.h"

namespace clikart {
namespace {

// Work below this runs on the caller when it can: handing it to a parked worker costs more.
constexpr double kCallerNanoseconds = 15'000;
// Unfinished calls on one stream before the next caller waits for half of them.  Enough to hide every wake-up (each queued
// call is at least kCallerNanoseconds of work); more would only hold memory and delay the end of the process.
constexpr uint64_t kInFlight = 256;
// A parked thread takes some 25 us to wake.  Waiting that long awake is worth it; then it parks.
constexpr int kWaitSpins = 300;
constexpr int kWaitYields = 100;

std::mutex submission;    // guards the hazards of all storages, the queues, tokens and tickets of all streams, and these:
int gate_closed = 0;      // by how many
uint64_t unfinished = 0;  // calls submitted and not over, on all streams
std::condition_variable& nothing_unfinished = *new std::condition_variable;  // never destroyed: the end of the process waits on it

std::atomic<bool> forked_child{false};

/// What happens at fork and at exit; called before the first work.
void watch_process() {
    static const bool watched = [] {
        pthread_atfork([] { submission.lock(); }, [] { submission.unlock(); },
                       [] {
                           forked_child = true;
                           unfinished = 0;  // nobody is left to finish it, and the child's end must not wait
                           submission.unlock();
                       });
        shut_down_at_exit();
        return true;
    }();
    (void)watched;
}

thread_local bool thread_is_over = false;  // outlives the lane

struct Lane {
    const Ref<Stream> stream = make_ref<Stream>(Device{});
    ~Lane() {
        thread_is_over = true;
        // exit() destroys the main thread's objects first of all: before oneDNN's, some of which come to be, and are registered
        // for destruction, only while its kernels are first made.
        if (getpid() == gettid()) finish_work();
    }
};

void add_dependency(std::vector<Ticket>& list, const Ticket& ticket, const Timeline* own) {
    if (ticket.timeline.get() != own && !ticket.settled()) list.push_back(ticket);
}

/// Makes room, so that record_read cannot fail.
void reserve_read(Storage& storage) {
    storage.reads.reserve(storage.reads.size() + 1);
}

void record_read(Storage& storage, const Ref<Timeline>& stream, uint64_t ticket) {
    for (size_t i = 0; i < storage.reads.size();) {
        Ticket& read = storage.reads[i];
        if (read.timeline == stream) {
            read.value = ticket;
            return;
        }
        if (read.settled()) {
            storage.reads.remove_unordered(i);
        } else {
            ++i;
        }
    }
    storage.reads.push_back({stream, ticket});
}

void record_write(Storage& storage, const Ref<Timeline>& stream, uint64_t ticket) {
    storage.reads.clear();
    storage.last_write.timeline = stream;
    storage.last_write.value = ticket;
}

/// The failure of some work, told with the operator and its operands.
Ref<Error> explained(const Work& work, const Ref<Error>& error) noexcept {
    try {
        std::string operands;
        for (const auto& input : work.inputs) operands += (operands.empty() ? "" : ", ") + describe(*input);
        std::string results;
        for (const auto& output : work.outputs) results += (results.empty() ? "" : ", ") + describe(*output);
        return make_ref<Error>(error->kind(), fmt::format("{}: {} (from {} to {})", work.name(), error->message(), operands, results));
    } catch (...) {
        return error;
    }
}

}  // namespace

const Ref<Stream>& Stream::lane() {
    if (thread_is_over) fail(ErrorKind::Error, "the calling thread is ending, it cannot start work any more");
    thread_local const Lane lane;
    return lane.stream;
}

void Stream::require_open(const Work& work) {
    if (forked_child) fail(ErrorKind::Error, "{}: the child of a fork cannot compute, it has none of its parent's threads; use spawn", work.name());
    if (gate_closed) fail(ErrorKind::Error, "{}: the runtime is shutting down, no more work is accepted", work.name());
}

bool Stream::start_on_caller(Work& work, bool at_once, uint64_t& ticket) {
    if (!at_once && work.cost > kCallerNanoseconds) return false;
    watch_process();
    std::lock_guard lock(submission);
    require_open(work);
    if (running_ || first_) return false;
    for (const auto& input : work.inputs) {
        if (!input->storage().last_write.settled()) return false;
    }
    for (const auto& output : work.outputs) {
        if (!output->storage().last_write.settled()) return false;
        for (const Ticket& read : output->storage().reads) {
            if (!read.settled()) return false;
        }
    }
    for (const auto& input : work.inputs) reserve_read(input->storage());
    // From here on nothing throws.
    running_ = true;
    ++unfinished;
    ticket = ++last_ticket_;
    const Ref<Timeline> self = Ref<Timeline>::share(this);
    for (const auto& input : work.inputs) record_read(input->storage(), self, ticket);
    for (const auto& output : work.outputs) {
        // Nobody else can know a fresh output before this returns, and by then the write is over.
        if (work.in_place) record_write(output->storage(), self, ticket);
    }
    return true;
}

void Stream::finish_on_caller(uint64_t ticket) noexcept {
    settle(ticket);
    std::lock_guard lock(submission);
    running_ = false;
    release_waiters(ticket);
    schedule();
}

void Stream::pace() {
    uint64_t last;
    {
        std::lock_guard lock(submission);
        last = last_ticket_;
    }
    if (last - std::min(last, completed()) >= kInFlight) wait_for(last - kInFlight / 2);
}

uint64_t Stream::enqueue(std::unique_ptr<Work> work) {
    watch_process();
    ThreadPool::instance();  // may fail to start; not under the lock, and not half-way
    std::lock_guard lock(submission);
    require_open(*work);
    for (const auto& input : work->inputs) add_dependency(work->dependencies_, input->storage().last_write, this);
    for (const auto& output : work->outputs) {
        add_dependency(work->dependencies_, output->storage().last_write, this);
        for (const Ticket& read : output->storage().reads) add_dependency(work->dependencies_, read, this);
    }
    for (const auto& input : work->inputs) reserve_read(input->storage());
    // From here on nothing throws.
    ++unfinished;
    work->ticket_ = ++last_ticket_;
    const Ref<Timeline> self = Ref<Timeline>::share(this);
    for (const auto& input : work->inputs) record_read(input->storage(), self, work->ticket_);
    for (const auto& output : work->outputs) record_write(output->storage(), self, work->ticket_);
    Work* const added = work.release();
    (last_ ? last_->next_ : first_) = added;
    last_ = added;
    schedule();
    return last_ticket_;
}

bool Stream::head_is_ready() noexcept {
    for (const Ticket& dependency : first_->dependencies_) {
        if (dependency.settled()) continue;
        // The other stream looks at its waiters under the submission lock after it advanced, so this is not missed: either
        // the dependency is seen as settled here, or that look is still to come.
        auto* other = static_cast<Stream*>(dependency.timeline.get());
        retain();  // until release_waiters
        awaited_ = dependency.value;
        next_waiter_ = other->first_waiter_;
        other->first_waiter_ = this;
        waiting_ = true;
        return false;
    }
    return true;
}

void Stream::schedule() noexcept {
    if (running_ || waiting_ || !first_ || !head_is_ready()) return;
    running_ = true;
    retain();  // held by the pool until run() gives it back
    ThreadPool::instance().enqueue(*this);
}

void Stream::run() noexcept {
    const Ref<Stream> self = Ref<Stream>::adopt(this);
    uint64_t done = 0;  // tickets begin at 1
    for (;;) {
        std::unique_ptr<Work> work;
        {
            std::lock_guard lock(submission);
            if (done) release_waiters(done);
            if (!first_ || !head_is_ready()) {
                running_ = false;
                return;
            }
            work.reset(first_);
            first_ = first_->next_;
            if (!first_) last_ = nullptr;
        }
        execute(*work);
        done = work->ticket_;
        // Before the counter moves: whoever waits for this work may count on the memory it alone still held.
        work.reset();
        settle(done);
    }
}

void Stream::execute(Work& work) noexcept {
    Ref<Error> error;
    for (const auto& input : work.inputs) {
        if (input->storage().error) error = input->storage().error;
    }
    if (!error) {
        try {
            for (const auto& output : work.outputs) output->storage().materialize();
            work.run();
        } catch (...) {
            error = explained(work, current_error());
        }
    }
    if (error) {
        for (const auto& output : work.outputs) output->storage().error = error;
    }
}

void Stream::settle(uint64_t ticket) noexcept {
    advance(ticket);
    // Sequentially consistent on both sides: either this sees the sleeper or the sleeper sees the counter.
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        {
            std::lock_guard lock(sleep_mutex_);
        }
        settled_.notify_all();
    }
}

void Stream::release_waiters(uint64_t ticket) noexcept {
    if (--unfinished == 0) nothing_unfinished.notify_all();
    for (Stream** link = &first_waiter_; *link;) {
        Stream* const waiter = *link;
        if (waiter->awaited_ > ticket) {
            link = &waiter->next_waiter_;
            continue;
        }
        *link = waiter->next_waiter_;
        waiter->waiting_ = false;
        waiter->schedule();
        waiter->release();
    }
}

bool Stream::wait_for(uint64_t value, int64_t timeout_ns) {
    const auto over = [&] { return completed() >= value; };
    if (over()) return true;
    if (forked_child) fail(ErrorKind::Error, "the value was still to come when the process forked, it will not come in the child");
    if (timeout_ns == 0) return false;
    using Clock = std::chrono::steady_clock;
    constexpr int64_t kForever = int64_t{1} << 60;  // 36 years; more would overflow the clock
    const bool limited = timeout_ns > 0 && timeout_ns < kForever;
    const auto deadline = limited ? Clock::now() + std::chrono::nanoseconds(timeout_ns) : Clock::time_point::max();
    for (int spins = 0; spins < kWaitSpins + kWaitYields; ++spins) {
        if (over()) return true;
        if (spins < kWaitSpins) {
            cpu_relax();
        } else {
            if (limited && Clock::now() >= deadline) return false;
            std::this_thread::yield();  // there are as many workers as cores: let them have this one
        }
    }
    std::unique_lock lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool done = true;
    if (limited) {
        done = settled_.wait_until(lock, deadline, over);
    } else {
        settled_.wait(lock, over);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return done;
}

bool Stream::idle() const noexcept {
    std::lock_guard lock(submission);
    return completed() >= last_ticket_;
}

void Stream::synchronize() {
    uint64_t last;
    {
        std::lock_guard lock(submission);
        last = last_ticket_;
    }
    wait_for(last);
}

bool Stream::wait(const Ticket& ticket, int64_t timeout_ns) {
    return ticket.settled() || static_cast<Stream*>(ticket.timeline.get())->wait_for(ticket.value, timeout_ns);
}

Ticket Stream::last_write(const Storage& storage) {
    std::lock_guard lock(submission);
    return storage.last_write;
}

void Stream::close_gate() noexcept {
    std::lock_guard lock(submission);
    ++gate_closed;
}

void Stream::open_gate() noexcept {
    std::lock_guard lock(submission);
    --gate_closed;
}

void Stream::drain_all() {
    std::unique_lock lock(submission);
    nothing_unfinished.wait(lock, [] { return unfinished == 0; });
}

std::vector<Ticket> Stream::open_reads(const Storage& storage) {
    std::vector<Ticket> open;
    if (forked_child) return open;  // those readers are the parent's
    std::lock_guard lock(submission);
    for (const Ticket& read : storage.reads) {
        if (!read.settled()) open.push_back(read);
    }
    return open;
}

}  // namespace clikart
