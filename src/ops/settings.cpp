#include "ops/settings.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/call_site.h"
#include "ops/recorder.h"

namespace clikart {
namespace {

struct StreamsOfThread {
    std::vector<std::pair<Device, Ref<Stream>>> set;  // at most one for a device
    ~StreamsOfThread() {
        thread_settings.any_stream = false;  // which outlives this: objects that are destroyed later may still ask
        thread_settings.ending = true;
    }
};
thread_local StreamsOfThread streams;

}  // namespace

bool synchronous_from_environment() noexcept {
    static const bool wished = [] {
        const char* const text = std::getenv("CLIKA_SYNC");
        return text && *text && std::strcmp(text, "0") != 0;
    }();
    return wished;
}

void set_thread_mode(Mode wanted) {
    if (wanted < Mode::Eager || wanted > Mode::Capture) fail(ErrorKind::Value, "set_mode: {} is no mode", static_cast<int>(wanted));
    if (wanted == Mode::Capture && (!thread_recorder() || thread_settings.recording))
        fail(ErrorKind::Runtime, "set_mode: the calling thread is not recording a graph");
    if (thread_settings.in_region && wanted != Mode::Capture) {
        fail(ErrorKind::Runtime, "set_mode: a branch or a loop of a graph is recorded, whose calls cannot be run or deferred");
    }
    thread_settings.mode = wanted;
}

void set_thread_synchronous(bool wanted) noexcept {
    thread_settings.synchronous = wanted;
    thread_settings.synchronous_was_set = true;
}

Device thread_device() noexcept {
    const Device set = thread_settings.device;
    return set.type == DeviceType::Unspecified ? Device{} : set;
}

Device set_device_of_thread() noexcept {
    return thread_settings.device;
}

void set_thread_device(Device device) {
    if (device.type != DeviceType::Unspecified) require_available(device, "device");
    thread_settings.device = device;
}

const Ref<Stream>& thread_stream(Device device) noexcept {
    static const auto& none = *new Ref<Stream>;
    for (const auto& entry : streams.set) {
        if (entry.first == device) return entry.second;
    }
    return none;
}

void set_thread_stream(Device device, const Ref<Stream>& stream) {
    if (stream && stream->device() != device) {
        fail(ErrorKind::Value, "stream: a stream of device {} cannot be set for {}", to_string(stream->device()), to_string(device));
    }
    if (thread_settings.ending) fail(ErrorKind::Error, "stream: the calling thread is ending");
    std::erase_if(streams.set, [&](const auto& entry) { return entry.first == device; });
    if (stream) streams.set.emplace_back(device, stream);
    thread_settings.any_stream = !streams.set.empty();
}

// Made when the library is loaded, see exec/fork.cpp.
[[maybe_unused]] const bool made_early = (attention(), synchronous_from_environment(), true);

// ---- call sites ------------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> watched{false};

thread_local bool site_is_over = false;  // outlives the next

struct Site {
    Ref<Origin> untold;
    Ref<Origin> tag;
    ~Site() {
        site_is_over = true;
        if (untold) attention().origins.fetch_sub(1, std::memory_order_relaxed);
    }
};
thread_local Site site;

}  // namespace

Attention& attention() noexcept {
    static auto& words = *new Attention;
    return words;
}

void watch_origins() noexcept {
    watched.store(true, std::memory_order_relaxed);
}

void set_thread_tag(std::string tag) {
    if (site_is_over) return;
    site.tag = nullptr;
    if (tag.empty()) return;
    auto origin = make_ref<Origin>();
    origin->tell(std::move(tag));
    site.tag = std::move(origin);
}

Ref<Origin> current_origin() {
    if (site_is_over) return nullptr;
    if (site.tag) return site.tag;
    if (!watched.load(std::memory_order_relaxed)) return nullptr;
    if (!site.untold) {
        site.untold = make_ref<Origin>();
        attention().origins.fetch_add(1, std::memory_order_relaxed);
    }
    return site.untold;
}

CallPlace::CallPlace(const std::string& text) : changed_(!text.empty() && !site_is_over) {
    if (!changed_) return;
    auto origin = make_ref<Origin>();
    origin->tell(text);
    before_ = std::exchange(site.tag, std::move(origin));
}

CallPlace::~CallPlace() {
    if (changed_) site.tag = std::move(before_);
}

void tell_origin(const char* text) {
    if (site_is_over || !site.untold) return;
    site.untold->tell(text);
    site.untold = nullptr;
    attention().origins.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace clikart
