#include "ops/settle.h"

#include <cstring>

#include "base/deadline.h"
#include "exec/host_read.h"
#include "ops/call.h"
#include "ops/deferred.h"
#include "ops/recorder.h"
#include "ops/settings.h"

namespace clikart {

void require_value(const Tensor& tensor, const char* who) {
    if (tensor.node) {
        fail(ErrorKind::Runtime, "{}: the tensor {} stands for a value while a graph is recorded; it cannot be read", who, describe(tensor));
    }
    if (tensor.storage().is_meta()) {
        fail(ErrorKind::Runtime, "{}: the tensor {} is on device meta and has no storage; it cannot be read", who, describe(tensor));
    }
}

Status status_of(const Tensor& tensor) {
    if (tensor.node || tensor.storage().is_meta() || is_deferred(tensor.storage())) return Status::Unscheduled;
    return tensor.born_with_data ? Status::Available : Status::Evaluated;
}

bool is_ready(const Tensor& tensor) {
    if (status_of(tensor) == Status::Unscheduled) return false;
    Stream::State state;
    Stream::look_at(tensor.storage(), state);
    return state.open_writes.empty();
}

void start(const Tensor& tensor, const char* who) {
    require_value(tensor, who);
    submit_deferred(tensor.storage());
}

namespace {

/// Waits for the writes submitted so far: others may go on writing for ever.  False when one is open after the timeout.
bool wait_for_writes(Storage& storage, int64_t timeout_ns, Ref<Error>& error) {
    Stream::State state;
    Stream::look_at(storage, state);
    if (!state.open_writes.empty()) {
        if (timeout_ns == 0) return false;
        const Deadline deadline(timeout_ns);
        for (const Ticket& write : state.open_writes) {
            if (!Stream::wait(write, deadline.left())) return false;
        }
        Stream::look_at(storage, state);
    }
    error = std::move(state.error);
    return true;
}

}  // namespace

bool settle_within(const Tensor& tensor, const char* who, int64_t timeout_ns) {
    start(tensor, who);
    Ref<Error> error;
    if (!wait_for_writes(tensor.storage(), timeout_ns, error)) return false;
    if (error) {
        error->report();
        throw Failure(error);
    }
    return true;
}

void throw_failure(const Tensor& tensor) {
    Stream::State state;
    Stream::look_at(tensor.storage(), state);
    if (!state.error) return;
    state.error->report();
    throw Failure(state.error);
}

void settle(const Tensor& tensor, const char* who) {
    settle_within(tensor, who, -1);
}

bool settle_for_writing(const Tensor& tensor, const char* who, int64_t timeout_ns) {
    note_value_read(tensor);
    const Deadline deadline(timeout_ns);
    submit_deferred_for_writing(tensor.storage());
    if (!settle_within(tensor, who, timeout_ns)) return false;
    for (const Ticket& read : Stream::open_reads(tensor.storage())) {
        if (!Stream::wait(read, deadline.left())) return false;
    }
    return true;
}

void settle_size(const Tensor& tensor, const char* who) {
    if (!tensor.size_known()) settle(tensor, who);
}

void require_sizes(std::span<Tensor* const> operands, const char* who) {
    for (const Tensor* t : operands) {
        if (t->size_known()) continue;
        if (thread_mode() != Mode::Eager) {
            fail(ErrorKind::Runtime, "{}: the size of {} depends on data that is not there while calls are deferred or recorded", who, describe(*t));
        }
        settle(*t, who);
    }
}

Ref<Tensor> dense_now(Tensor& tensor, const char* who) {
    require_value(tensor, who);
    note_value_read(tensor);
    Ref<Tensor> dense = Ref<Tensor>::share(&tensor);
    if (!tensor.is_contiguous()) {
        struct Eagerly {
            const Mode before = thread_mode();
            Eagerly() { set_thread_mode(Mode::Eager); }
            ~Eagerly() { set_thread_mode(before); }
        } const eagerly;
        Tensor* const inputs[] = {&tensor};
        dense = call(OpCode::Copy, inputs, Attributes{});
    }
    start(*dense, who);
    return dense;
}

void copy_to_host(Tensor& tensor, void* to, const char* who) {
    const Ref<Tensor> dense = dense_now(tensor, who);
    Storage* const storages[] = {&dense->storage()};
    const HostRead reading(storages);
    if (const int64_t bytes = bytes_of(dense->dtype(), dense->numel())) std::memcpy(to, dense->data(), static_cast<size_t>(bytes));
}

}  // namespace clikart
