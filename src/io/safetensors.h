// The safetensors file format: eight bytes of header length, a JSON header, then the tensors' bytes.
// Source of the layout: the format's public description (little-endian; row-major; ranges cover the data without holes).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace clikart::safetensors {

struct Entry {
    std::string name;
    Ref<Tensor> tensor;
};

/// What a file has beside its tensors.
using Metadata = std::map<std::string, std::string>;

/// Reads a whole file; entries in the order of their data.  Throws OSError when it cannot be read, ValueError when it
/// is not a well-formed file (nothing in it is trusted), TypeError for a dtype that is not known here, and MemoryError.
std::vector<Entry> load(const std::string& path);

/// The same with the metadata; tensors are not read but mapped, read-only, as far as their elements lie on their own borders.  The
/// file has to stay as it is as long as one of them is used.
std::vector<Entry> map(const std::string& path, Metadata& metadata);

/// Writes all or nothing: a file of another name is filled, then renamed.  The tensors are settled and contiguous.
/// Throws OSError when the file cannot be written and ValueError for names that are empty or not unique.
void save(const std::string& path, const std::vector<Entry>& entries, const Metadata& metadata = {});

}  // namespace clikart::safetensors
