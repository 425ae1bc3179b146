// Where memory lives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace clikart {

enum class DeviceType : int32_t { Unspecified = 0, Cpu = 1, Cuda = 2, Vulkan = 3, Metal = 4, Meta = 5 };

struct Device {
    DeviceType type = DeviceType::Cpu;
    int32_t index = 0;
    friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda", "cuda:0", "vulkan:1", "metal", "meta".  Throws ValueError for any other text.
Device parse_device(std::string_view text);
/// "cpu" and "meta" without an index, the others with it: "cuda:0".
std::string to_string(Device device);
/// True for a device that tensors can be made on in this process; on meta they have no storage.
bool is_available(Device device) noexcept;
/// Throws NotImplementedError, naming `who` and the device, when the device cannot hold tensors here.
void require_available(Device device, const char* who);

}  // namespace clikart
