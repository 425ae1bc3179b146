#include "ops/settings.h"

#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/call_site.h"
#include "ops/recorder.h"

namespace clikart {
namespace {

bool synchronous_from_environment() noexcept {
    const char* const wish = std::getenv("CLIKA_SYNC");
    return wish && *wish && std::strcmp(wish, "0") != 0;
}

// Plain values, because these are read in every call.
thread_local Mode mode = Mode::Eager;
thread_local int8_t synchronous = -1;  // not set
thread_local DeviceType device_type = DeviceType::Unspecified;
thread_local int32_t device_index = 0;
thread_local bool any_stream = false;

thread_local std::vector<std::pair<Device, Ref<Stream>>> streams;  // at most one for a device

}  // namespace

Mode thread_mode() noexcept {
    return mode;
}

void set_thread_mode(Mode wanted) {
    if (wanted < Mode::Eager || wanted > Mode::Capture) fail(ErrorKind::Value, "set_mode: {} is no mode", static_cast<int>(wanted));
    if (wanted == Mode::Capture && !thread_recorder()) fail(ErrorKind::Error, "set_mode: the calling thread is not recording a graph");
    mode = wanted;
}

bool thread_is_synchronous() noexcept {
    if (synchronous < 0) {
        static const bool by_default = synchronous_from_environment();
        return by_default;
    }
    return synchronous;
}

void set_thread_synchronous(bool wanted) noexcept {
    synchronous = wanted;
}

Device thread_device() noexcept {
    return device_type == DeviceType::Unspecified ? Device{} : Device{device_type, device_index};
}

Device set_device_of_thread() noexcept {
    return {device_type, device_index};
}

void set_thread_device(Device device) {
    if (device.type != DeviceType::Unspecified) require_available(device, "device");
    device_type = device.type;
    device_index = device.index;
}

Ref<Stream> thread_stream(Device device) {
    if (any_stream) {
        for (const auto& [on, stream] : streams) {
            if (on == device) return stream;
        }
    }
    return nullptr;
}

void set_thread_stream(Device device, const Ref<Stream>& stream) {
    if (stream && stream->device() != device) {
        fail(ErrorKind::Value, "stream: a stream of device {} cannot be set for {}", to_string(stream->device()), to_string(device));
    }
    std::erase_if(streams, [&](const auto& entry) { return entry.first == device; });
    if (stream) streams.emplace_back(device, stream);
    any_stream = !streams.empty();
}

Ref<Stream> resolve(Device device) {
    if (Ref<Stream> stream = thread_stream(device)) return stream;
    return Stream::lane();
}

// ---- call sites ------------------------------------------------------------------------------------------------------

namespace {

std::atomic<bool> watched{false};

struct Site {
    Ref<Origin> untold;
    Ref<Origin> tag;
    ~Site() {
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
    site.tag = nullptr;
    if (tag.empty()) return;
    auto origin = make_ref<Origin>();
    origin->tell(std::move(tag));
    site.tag = std::move(origin);
}

Ref<Origin> current_origin() {
    if (site.tag) return site.tag;
    if (!watched.load(std::memory_order_relaxed)) return nullptr;
    if (!site.untold) {
        site.untold = make_ref<Origin>();
        attention().origins.fetch_add(1, std::memory_order_relaxed);
    }
    return site.untold;
}

void tell_origin(const char* text) {
    if (!site.untold) return;
    site.untold->tell(text);
    site.untold = nullptr;
    attention().origins.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace clikart
