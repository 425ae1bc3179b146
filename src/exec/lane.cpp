#include "exec/lane.h"

#include <unistd.h>

#include "exec/shutdown.h"

namespace clikart {
namespace {

thread_local bool thread_is_over = false;  // outlives the lane

}  // namespace

Lane::~Lane() {
    thread_is_over = true;
    // exit() destroys the main thread's objects first of all: before oneDNN's, some of which come to be, and are registered
    // for destruction, only while its kernels are first made.
    if (getpid() == gettid()) finish_work();
}

Lane& lane_of_thread() {
    if (thread_is_over) fail(ErrorKind::Error, "the calling thread is ending, it cannot start work any more");
    thread_local Lane lane;
    return lane;
}

void renew_lane() noexcept {
    try {
        if (!thread_is_over) lane_of_thread().stream = make_ref<Stream>(Device{});
    } catch (...) {  // then it keeps the old one
    }
}

Ref<Stream> host_timeline() {
    return thread_is_over ? make_ref<Stream>(Device{}) : lane_of_thread().host;
}

void watch_process() {
    static const bool watched = [] {
        shut_down_at_exit();
        return true;
    }();
    (void)watched;
}

const Ref<Stream>& Stream::lane() {
    return lane_of_thread().stream;
}

const Ref<Stream>& Stream::default_stream(Device device) {
    require_available(device, "default_stream");
    static const auto& cpu = *new Ref<Stream>(make_ref<Stream>(Device{}, true));
    return cpu;
}

}  // namespace clikart
