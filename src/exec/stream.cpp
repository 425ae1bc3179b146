#include "exec/stream.h"

#include <chrono>
#include <set>
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

std::mutex submission;  // guards the hazards of all storages and the queues, tokens and tickets of all streams

bool gate_closed = false;  // guarded by the submission lock

// Streams with queued work, so that the end of the process can wait for them; guarded by the submission lock.
std::set<Stream*>& busy_streams() {
    static std::set<Stream*>& streams = *new std::set<Stream*>;
    return streams;
}

void add_dependency(std::vector<Ticket>& list, const Ticket& ticket, const Timeline* own) {
    if (ticket.timeline.get() != own && !ticket.settled()) list.push_back(ticket);
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
    thread_local const Ref<Stream> lane = make_ref<Stream>(Device{});
    return lane;
}

bool Stream::start_on_caller(Work& work, bool at_once, uint64_t& ticket) {
    if (!at_once && work.cost > kCallerNanoseconds) return false;
    std::lock_guard lock(submission);
    if (running_ || !queue_.empty() || gate_closed) return false;
    for (const auto& input : work.inputs) {
        if (!input->storage().last_write.settled()) return false;
    }
    for (const auto& output : work.outputs) {
        if (!output->storage().last_write.settled()) return false;
        for (const Ticket& read : output->storage().reads) {
            if (!read.settled()) return false;
        }
    }
    running_ = true;
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
    complete(ticket);
    std::lock_guard lock(submission);
    running_ = false;
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
    static const bool registered = (shut_down_at_exit(), true);  // from now on there may be work to finish
    (void)registered;
    std::lock_guard lock(submission);
    if (gate_closed) fail(ErrorKind::Error, "{}: the process is ending, no more work is accepted", work->name());
    Pending pending{std::move(work), last_ticket_ + 1, {}};
    const Ref<Timeline> self = Ref<Timeline>::share(this);
    for (const auto& input : pending.work->inputs) add_dependency(pending.dependencies, input->storage().last_write, this);
    for (const auto& output : pending.work->outputs) {
        add_dependency(pending.dependencies, output->storage().last_write, this);
        for (const Ticket& read : output->storage().reads) add_dependency(pending.dependencies, read, this);
    }
    for (const auto& input : pending.work->inputs) record_read(input->storage(), self, pending.ticket);
    for (const auto& output : pending.work->outputs) record_write(output->storage(), self, pending.ticket);
    queue_.push_back(std::move(pending));
    busy_streams().insert(this);
    ++last_ticket_;
    schedule();
    return last_ticket_;
}

bool Stream::head_is_ready() {
    for (const Ticket& dependency : queue_.front().dependencies) {
        if (dependency.settled()) continue;
        // The other stream looks at its waiters under the submission lock after it advanced, so this cannot be missed.
        auto* other = static_cast<Stream*>(dependency.timeline.get());
        other->waiters_.push_back({dependency.value, Ref<Stream>::share(this)});
        if (dependency.settled()) continue;  // advanced in between; the waiter entry is a harmless extra look
        return false;
    }
    return true;
}

void Stream::schedule() {
    if (running_ || queue_.empty() || !head_is_ready()) return;
    running_ = true;
    retain();  // held by the pool until run() gives it back
    ThreadPool::instance().enqueue(*this);
}

void Stream::run() noexcept {
    const Ref<Stream> self = Ref<Stream>::adopt(this);
    for (;;) {
        Pending pending;
        {
            std::lock_guard lock(submission);
            if (queue_.empty() || !head_is_ready()) {
                if (queue_.empty()) busy_streams().erase(this);
                running_ = false;
                return;
            }
            pending = std::move(queue_.front());
            queue_.pop_front();
        }
        execute(*pending.work);
        // Before the counter moves: whoever waits for this work may count on the memory it alone still held.
        pending.work.reset();
        complete(pending.ticket);
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

void Stream::complete(uint64_t ticket) noexcept {
    advance(ticket);
    // Sequentially consistent on both sides: either this sees the sleeper or the sleeper sees the counter.
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        {
            std::lock_guard lock(sleep_mutex_);
        }
        settled_.notify_all();
    }
    std::lock_guard lock(submission);
    for (size_t i = 0; i < waiters_.size();) {
        if (waiters_[i].value <= ticket) {
            const Ref<Stream> waiter = std::move(waiters_[i].stream);
            waiters_[i] = std::move(waiters_.back());
            waiters_.pop_back();
            waiter->schedule();
        } else {
            ++i;
        }
    }
}

bool Stream::wait_for(uint64_t value, int64_t timeout_ns) {
    for (int spins = 0; spins < kWaitSpins + kWaitYields; ++spins) {
        if (completed() >= value) return true;
        if (spins < kWaitSpins) {
            cpu_relax();
        } else {
            std::this_thread::yield();  // there are as many workers as cores: let them have this one
        }
    }
    const auto over = [&] { return completed() >= value; };
    std::unique_lock lock(sleep_mutex_);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    bool done = true;
    if (timeout_ns < 0) {
        settled_.wait(lock, over);
    } else {
        done = settled_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), over);
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
    gate_closed = true;
}

void Stream::drain_all() {
    for (;;) {
        Ref<Stream> stream;
        {
            std::lock_guard lock(submission);
            if (busy_streams().empty()) return;
            stream = Ref<Stream>::share(*busy_streams().begin());
        }
        stream->synchronize();
        // Its worker still has to take the stream off the list.
        std::lock_guard lock(submission);
        if (stream->queue_.empty()) busy_streams().erase(stream.get());
    }
}

}  // namespace clikart
