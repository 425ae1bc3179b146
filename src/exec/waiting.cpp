// The waiting half of Stream: for tickets, for whole streams, and callbacks for who does not want to wait.
#include <algorithm>
#include <optional>
#include <thread>

#include "base/deadline.h"
#include "exec/lane.h"
#include "exec/parking.h"
#include "exec/schedule.h"
#include "exec/spin.h"
#include "exec/stream.h"

namespace clikart {
namespace {

// A parked thread takes some 25 us to wake.  As a worker does, it stays awake long enough to take part in the next operator's loop, when one of
// this ends with a long piece; then it parks.
constexpr int kWaitSpins = 2000;
constexpr int kSpinsToClock = 64;  // between two looks at the clock, some 2 us
constexpr int kWaitYields = 100;
// Who has less time takes no part in loops: a piece can take a millisecond, of the largest products some.
constexpr int64_t kTakePartNanoseconds = 10'000'000;

}  // namespace

bool Stream::wait_for(uint64_t value, int64_t timeout_ns) {
    const auto over = [&] { return completed() >= value; };
    if (over()) return true;
    if (timeout_ns == 0) return false;
    ThreadPool::instance().ensure_workers();  // a fork's child has none yet
    const Deadline deadline(timeout_ns);
    // The waiter computes, where no worker took the stream yet: that saves the worker's wake-up.  Only this stream, only as far
    // as is waited for, and nothing that would outlast the timeout (I5).
    if (next_fits(deadline) && ThreadPool::instance().take(*this)) {
        run_until(value, deadline);
        if (over()) return true;
    }
    {
        std::optional<ThreadPool::Waiter> waiter;
        const int64_t left = deadline.left();
        if (left < 0 || left >= kTakePartNanoseconds) waiter.emplace(crew_, *this, value, deadline);
        for (int spins = 0; spins < kWaitSpins + kWaitYields; ++spins) {
            if (over()) return true;
            if (waiter && waiter->take_part()) {
                if (deadline.over()) return over();
                spins = 0;
            } else if (spins < kWaitSpins) {
                if (spins % kSpinsToClock == 0 && deadline.over()) return false;
                cpu_relax();
            } else {
                if (deadline.over()) return false;
                if (waiter && spins == kWaitSpins) waiter->give_up_room();
                std::this_thread::yield();  // there are as many workers as cores: let them have this one
            }
        }
    }
    ParkingLot& lot = ParkingLot::of(this);
    std::unique_lock lock(lot.mutex);
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const bool done = deadline.wait(lot.moved, lock, over);
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
    return done;
}

bool Stream::idle() const noexcept {
    std::lock_guard lock(submission());
    return completed() >= last_ticket_;
}

/// Throws the first failure that `of_this` picks and nobody was told of.
template <class OfThis>
void Stream::throw_untold(OfThis&& of_this) {
    Ref<Error> error;
    {
        std::lock_guard lock(submission());
        auto& untold = Schedule::instance().untold;
        std::erase_if(untold, [](const UntoldFailure& f) { return f.error->reported(); });
        const auto first = std::find_if(untold.begin(), untold.end(), of_this);
        if (first == untold.end()) return;
        error = first->error;
        untold.erase(first);
    }
    error->report();
    throw Failure(error);
}

bool Stream::synchronize(int64_t timeout_ns) {
    uint64_t last;
    {
        std::lock_guard lock(submission());
        last = last_ticket_;
    }
    if (!wait_for(last, timeout_ns)) return false;
    throw_untold([this](const UntoldFailure& f) { return f.stream == id_; });
    return true;
}

bool Stream::synchronize(Device device, int64_t timeout_ns) {
    const Deadline deadline(timeout_ns);
    std::vector<std::pair<Ref<Stream>, uint64_t>> busy;
    {
        std::lock_guard lock(submission());
        for (Stream* s = Schedule::instance().first_busy; s; s = s->next_busy_) {
            if (s->device_ == device && s->retain_if_alive()) busy.emplace_back(Ref<Stream>::adopt(s), s->last_ticket_);
        }
    }
    for (const auto& [stream, ticket] : busy) {
        if (!stream->wait_for(ticket, deadline.left())) return false;
    }
    throw_untold([&](const UntoldFailure& f) { return f.device == device; });
    return true;
}

bool Stream::wait(const Ticket& ticket, int64_t timeout_ns) {
    return ticket.settled() || static_cast<Stream*>(ticket.timeline.get())->wait_for(ticket.value, timeout_ns);
}

void Stream::look_at(Storage& storage, State& state) {
    std::lock_guard lock(submission());
    const History& history = storage.history();
    for (const Ticket& write : history.writes) {
        if (!write.settled()) state.open_writes.push_back(write);
    }
    state.error = history.error;
}

std::vector<Ticket> Stream::open_reads(Storage& storage) {
    std::vector<Ticket> open;
    std::lock_guard lock(submission());
    for (const Ticket& read : storage.history().reads) {
        if (!read.settled()) open.push_back(read);
    }
    return open;
}

void Stream::await_next(Callback* callback) noexcept {
    auto& awaited = callback->awaited_;
    for (size_t i = 0; i < awaited.size();) {
        if (awaited[i].settled()) {
            awaited.remove_unordered(i);
        } else {
            ++i;
        }
    }
    if (awaited.empty()) return CallbackPool::instance().post(callback);
    auto* const stream = static_cast<Stream*>(awaited[0].timeline.get());
    // The order of registration, also among those for one ticket.
    Callback** link = &stream->first_callback_;
    while (*link) link = &(*link)->next_;
    callback->next_ = nullptr;
    *link = callback;
}

void Stream::call_when_settled(Storage& storage, std::unique_ptr<Callback>& callback) {
    watch_process();
    CallbackPool::instance().start();
    {
        std::lock_guard lock(submission());
        if (Schedule::instance().gate_closed()) fail(ErrorKind::Error, "on_complete: the runtime is shutting down, no more callbacks are accepted");
        for (const Ticket& write : storage.history().writes) {
            if (!write.settled()) callback->awaited_.push_back(write);
        }
        if (!callback->awaited_.empty()) return await_next(callback.release());
    }
    const std::unique_ptr<Callback> now = std::move(callback);
    now->call();
}

}  // namespace clikart
