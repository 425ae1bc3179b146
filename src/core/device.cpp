#include "core/device.h"

#include <charconv>

#include "base/error.h"

namespace clikart {
namespace {

struct Spelling {
    std::string_view name;
    DeviceType type;
    bool indexed;
};
constexpr Spelling spellings[] = {
    {"cpu", DeviceType::Cpu, false},    {"cuda", DeviceType::Cuda, true},  {"vulkan", DeviceType::Vulkan, true},
    {"metal", DeviceType::Metal, true}, {"meta", DeviceType::Meta, false},
};

[[noreturn]] void unknown(std::string_view text) {
    fail(ErrorKind::Value, "device: unknown device '{}'; known are cpu, cuda, vulkan, metal (with an index: 'cuda:0') and meta", text.substr(0, 64));
}

}  // namespace

Device parse_device(std::string_view text) {
    const size_t colon = text.find(':');
    const std::string_view name = text.substr(0, colon);
    for (const Spelling& s : spellings) {
        if (s.name != name) continue;
        int32_t index = 0;
        if (colon != std::string_view::npos) {
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, index);
            if (error != std::errc() || rest != end || index < 0 || (!s.indexed && index != 0)) unknown(text);
        }
        return {s.type, index};
    }
    unknown(text);
}

std::string to_string(Device device) {
    for (const Spelling& s : spellings) {
        if (s.type == device.type) return s.indexed ? fmt::format("{}:{}", s.name, device.index) : std::string(s.name);
    }
    return "unspecified";
}

bool is_available(Device device) noexcept {
    return device == Device{DeviceType::Cpu, 0} || device.type == DeviceType::Meta;
}

void require_available(Device device, const char* who) {
    if (is_available(device)) return;
    fail(ErrorKind::NotImplemented, "{}: device {} needs a plug-in that is not installed; this build computes on cpu", who, to_string(device));
}

}  // namespace clikart
