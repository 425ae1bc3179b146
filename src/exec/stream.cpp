#include "exec/stream.h"

#include <unistd.h>

#include "base/float_mode.h"
#include "base/log.h"
#include "core/memory.h"
#include "exec/lane.h"
#include "exec/parking.h"
#include "exec/schedule.h"

namespace clikart {
bool covers_all(const Tensor& tensor) noexcept {
    const int64_t bytes = bytes_of(tensor.dtype(), tensor.numel());
    if (bytes != tensor.storage().bytes()) return false;
    const char* const begin = static_cast<const char*>(tensor.storage().data());
    return tensor.storage().shared_only_within(begin, begin + bytes);
}

namespace {

// Work below this runs on the caller when it can: handing it to a parked worker costs more.
constexpr double kCallerNanoseconds = 15'000;
// Unfinished calls on one stream before the next caller waits for half of them.  Enough to hide every wake-up (each queued
// call is at least kCallerNanoseconds of work); more would only hold memory and delay the end of the process.
constexpr uint64_t kInFlight = 256;
// The same for the bytes of their operands, which the queue keeps alive; but a few calls are always let through.
constexpr uint64_t kAlwaysInFlight = 8;
// How often work that lacks memory is run again after other work is over: what tensors hold will not come back.
constexpr int kMemoryTries = 16;
// A caller is held up no longer than this at a time: Python looks at signals between two calls.
constexpr int64_t kPaceNanoseconds = 50'000'000;
const int64_t kBytesInFlight = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) / 4;

void add_dependency(std::vector<Ticket>& list, const Ticket& ticket, const Timeline* own) {
    if (ticket.timeline.get() != own && !ticket.settled()) list.push_back(ticket);
}

/// The failure of some work, told with the operator and its operands.
Ref<Error> explained(const Work& work, const Ref<Error>& error, bool on_caller) noexcept {
    try {
        return make_ref<Error>(error->kind(), work.told(error->message()), on_caller ? work.place() : work.origin);
    } catch (...) {
        return error;
    }
}

Ref<Error> cancelled(const Work& work) {
    return make_ref<Error>(ErrorKind::Error, fmt::format("{}: cancelled before it ran", work.name()), work.origin);
}

/// What already spoiled the operands of work that is about to start.
Ref<Error> spoiled_by(const Work& work) {
    for (const auto& input : work.inputs) {
        if (const Ref<Error>& error = input->storage().history().error) return error;
    }
    return nullptr;
}

/// Of work in place.
bool cures(const Work& work) {
    for (const auto& output : work.outputs) {
        if (output->storage().history().error && covers_all(*output)) return true;
    }
    return false;
}

int64_t bytes_of(const Work& work) noexcept {
    int64_t bytes = 0;
    for (const auto& t : work.inputs) bytes += std::max<int64_t>(0, t->storage().bytes());
    for (const auto& t : work.outputs) bytes += std::max<int64_t>(0, t->storage().bytes());
    return bytes;
}

/// Whether work that lacked memory can be run again when others have given back theirs.
bool may_fit_later(const Work& work) noexcept {
    int64_t largest = work.bytes_beside();
    for (const auto& output : work.outputs) largest = std::max(largest, output->storage().bytes());
    return work.can_run_again() && largest <= largest_block();
}

bool fits(const Work& work, const Deadline& deadline) noexcept {
    const int64_t left = deadline.left();
    return left < 0 || work.cost < static_cast<double>(left);
}

/// Waits until some other call is over that was executing; false when all that execute wait here: so calls side by side
/// never fail for memory that each of them would have found alone.
bool wait_for_memory() noexcept {
    Schedule& all = Schedule::instance();
    std::unique_lock lock(submission());
    if (all.starved + 1 >= all.executing) return false;
    ++all.starved;
    const uint64_t seen = all.finished;
    all.something_finished.wait(lock, [&] { return all.finished != seen; });
    --all.starved;
    return true;
}

}  // namespace

std::string Work::told(const std::string& failure) const {
    std::string operands;
    for (const auto& input : inputs) operands += (operands.empty() ? "" : ", ") + describe(*input);
    std::string results;
    for (const auto& output : outputs) results += (results.empty() ? "" : ", ") + describe(*output);
    return fmt::format("{}: {} (from {} to {})", name(), failure, operands, results);
}

void Stream::require_open(const Work& work) {
    if (Schedule::instance().gate_closed()) fail(ErrorKind::Error, "{}: the runtime is shutting down, no more work is accepted", work.name());
}

// ---- submission ------------------------------------------------------------------------------------------------------

bool Stream::start_on_caller(Work& work, bool at_once, uint64_t& ticket) {
    if (!at_once && work.cost > kCallerNanoseconds) return false;
    watch_process();
    Schedule& all = Schedule::instance();
    std::lock_guard lock(submission());
    require_open(work);
    if (running_ || first_ || all.forking) return false;
    // One pass over the operands: this is in every call.
    for (const auto& input : work.inputs) {
        History& history = input->storage().history();
        if (!history.writes_settled()) return false;
        if (history.error && !work.spoiled_ && !work.in_parts) work.spoiled_ = history.error;
        history.reserve_read();
    }
    for (const auto& output : work.outputs) {
        const History& history = output->storage().history();
        if (!history.writes_settled() || !history.reads_settled()) return false;
    }
    if (work.in_place) work.cures_ = cures(work);
    // From here on nothing throws.
    running_ = true;
    mark_busy();
    ++all.unfinished;
    ++all.executing;
    ticket = ++last_ticket_;
    const Ref<Timeline> self = Ref<Timeline>::share(this);
    for (const auto& input : work.inputs) input->storage().history().record_read(self, ticket);
    for (const auto& output : work.outputs) {
        // Nobody else can know a fresh output before this returns, and by then the write is over.
        if (work.in_place) output->storage().history().record_write(self, ticket);
    }
    return true;
}

void Stream::finish_on_caller(uint64_t ticket, const Ref<Error>& failed) noexcept {
    settle(ticket);
    {
        std::lock_guard lock(submission());
        running_ = false;
        release_waiters(ticket);
        schedule();
        mark_idle();
    }
    if (failed) log(LogLevel::Info, failed->message().c_str());
}

void Stream::pace() {
    uint64_t last;
    {
        std::lock_guard lock(submission());
        last = last_ticket_;
        const uint64_t in_flight = last - std::min(last, completed());
        if (in_flight < kInFlight && (in_flight <= kAlwaysInFlight || bytes_in_flight_ < kBytesInFlight)) return;
        last -= in_flight / 2;
    }
    if (CallbackPool::on_thread()) return;  // what the stream waits for may be waiting for callbacks
    wait_for(last, kPaceNanoseconds);
}

void Stream::ready_to_enqueue() {
    watch_process();
    ThreadPool::instance().ensure_workers();  // may fail to start; not under the lock, and not half-way
}

void Stream::enqueue_locked(std::unique_ptr<Work>& work) {
    require_open(*work);
    for (const auto& input : work->inputs) {
        for (const Ticket& write : input->storage().history().writes) add_dependency(work->dependencies_, write, this);
    }
    for (const auto& output : work->outputs) {
        const History& history = output->storage().history();
        for (const Ticket& write : history.writes) add_dependency(work->dependencies_, write, this);
        for (const Ticket& read : history.reads) add_dependency(work->dependencies_, read, this);
    }
    for (const auto& input : work->inputs) input->storage().history().reserve_read();
    // From here on nothing throws.
    ++Schedule::instance().unfinished;
    work->submission_ = ++Schedule::instance().submissions;
    work->ticket_ = ++last_ticket_;
    work->bytes_ = bytes_of(*work);
    bytes_in_flight_ += work->bytes_;
    const Ref<Timeline> self = Ref<Timeline>::share(this);
    for (const auto& input : work->inputs) input->storage().history().record_read(self, work->ticket_);
    for (const auto& output : work->outputs) output->storage().history().record_write(self, work->ticket_);
    Work* const added = work.release();
    (last_ ? last_->next_ : first_) = added;
    last_ = added;
    mark_busy();
    schedule();
}

// ---- running ---------------------------------------------------------------------------------------------------------

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

void Stream::schedule(bool at_front) noexcept {
    if (running_ || waiting_ || !first_) return;
    if (Schedule::instance().forking) {
        if (!held_by_fork_) retain();  // until resume_all
        held_by_fork_ = true;
        return;
    }
    if (!head_is_ready()) return;
    running_ = true;
    retain();  // held by the pool until run() gives it back
    ThreadPool::instance().enqueue(*this, at_front);
}

bool Stream::next_fits(const Deadline& deadline) noexcept {
    std::lock_guard lock(submission());
    return first_ && fits(*first_, deadline);
}

void Stream::mark_busy() noexcept {
    if (busy_) return;
    Stream*& first = Schedule::instance().first_busy;
    busy_ = true;
    previous_busy_ = nullptr;
    next_busy_ = first;
    if (first) first->previous_busy_ = this;
    first = this;
}

void Stream::mark_idle() noexcept {
    if (!busy_ || running_ || waiting_ || first_) return;
    busy_ = false;
    (previous_busy_ ? previous_busy_->next_busy_ : Schedule::instance().first_busy) = next_busy_;
    if (next_busy_) next_busy_->previous_busy_ = previous_busy_;
}

void Stream::run() noexcept {
    run_until(UINT64_MAX, Deadline(-1));
}

/// Runs what is queued, up to the ticket `last`, as far as it is expected to be over before the deadline.
void Stream::run_until(uint64_t last, const Deadline& deadline) noexcept {
    const Ref<Stream> self = Ref<Stream>::adopt(this);
    uint64_t done = 0;  // tickets begin at 1
    int64_t bytes = 0;
    Ref<Error> failed;
    for (;;) {
        if (failed) {  // told when the work is over, and before the next is taken: a hook may use the runtime
            {
                std::lock_guard lock(submission());
                release_waiters(done);
                bytes_in_flight_ -= std::exchange(bytes, 0);
            }
            done = 0;
            log(LogLevel::Info, failed->message().c_str());
            failed = nullptr;
        }
        std::unique_ptr<Work> work;
        {
            std::lock_guard lock(submission());
            Schedule& all = Schedule::instance();
            if (done) release_waiters(done);
            bytes_in_flight_ -= std::exchange(bytes, 0);
            if (!first_ || all.forking || completed() >= last || !fits(*first_, deadline) || !head_is_ready()) {
                running_ = false;
                schedule(true);  // to the front: a waiter gives back what it took
                mark_idle();
            } else {
                work.reset(first_);
                first_ = first_->next_;
                if (!first_) last_ = nullptr;
                ++all.executing;
                try {
                    work->spoiled_ = work->submission_ <= all.cancelled ? cancelled(*work) : work->in_parts ? nullptr : spoiled_by(*work);
                    work->cures_ = work->in_place && cures(*work);
                } catch (...) {
                    work->spoiled_ = current_error();
                }
            }
        }
        if (!work) return;
        {
            const ThreadPool::Serving serving(crew_);
            failed = execute(*work, false);
        }
        done = work->ticket_;
        bytes = work->bytes_;
        // Before the counter moves: whoever waits for this work may count on the memory it alone still held.
        work.reset();
        settle(done);
    }
}

void Stream::note_untold(const Ref<Error>& error) noexcept {
    auto& untold = Schedule::instance().untold;
    std::erase_if(untold, [&](const UntoldFailure& f) { return f.error->reported() || (f.error == error && f.stream == id_); });
    if (untold.size() >= Schedule::kMostUntold) untold.erase(untold.begin());
    try {
        untold.push_back({error, id_, device_});
    } catch (...) {  // no memory for the note; the result has it all the same
    }
}

Ref<Error> Stream::execute(Work& work, bool on_caller) noexcept {
    Ref<Error> error = std::move(work.spoiled_);
    const bool failed_before = static_cast<bool>(error);
    bool again = !error;
    for (int tries = 0; again; ++tries) {
        again = false;
        try {
            const DefaultFloatMode mode;
            for (const auto& output : work.outputs) {
                if (output->storage().bytes() >= 0) output->storage().materialize();
            }
            work.run();
        } catch (...) {
            error = current_error();
            again = error->kind() == ErrorKind::Memory && tries < kMemoryTries && may_fit_later(work) && wait_for_memory();
            error = again ? nullptr : explained(work, error, on_caller);
        }
    }
    if (work.in_place) {
        for (const auto& output : work.outputs) output->storage().note_write();
    }
    const Ref<Error> inherited = work.in_parts ? work.inherited() : nullptr;
    if (!error && !inherited && !work.cures_) return nullptr;
    std::lock_guard lock(submission());
    for (size_t i = 0; i < work.outputs.size(); ++i) {
        Ref<Error>& of_value = work.outputs[i]->storage().history().error;
        const Ref<Error> spoils = !work.in_parts ? error : work.spoiled(i) ? (error ? error : inherited) : nullptr;
        if (spoils || covers_all(*work.outputs[i])) of_value = spoils;
    }
    if (error) note_untold(error);
    return failed_before ? nullptr : error;
}

void Stream::settle(uint64_t ticket) noexcept {
    advance(ticket);
    // Sequentially consistent on both sides: either this sees the sleeper or the sleeper sees the counter.
    if (sleepers_.load(std::memory_order_seq_cst) > 0) {
        ParkingLot& lot = ParkingLot::of(this);
        {
            std::lock_guard lock(lot.mutex);
        }
        lot.moved.notify_all();
    }
}

void Stream::release_waiters(uint64_t ticket) noexcept {
    Schedule& all = Schedule::instance();
    if (--all.executing == 0 && all.forking) all.nothing_executing.notify_all();
    ++all.finished;
    if (all.starved > 0) all.something_finished.notify_all();
    if (--all.unfinished == 0) {
        if (all.draining > 0) all.nothing_unfinished.notify_all();
    }
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
    for (Callback** link = &first_callback_; *link;) {
        Callback* const callback = *link;
        if (!callback->awaited_[0].settled()) {
            link = &callback->next_;
            continue;
        }
        *link = callback->next_;
        await_next(callback);
    }
}

}  // namespace clikart
