// Tensors in safetensors files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <ClikaRT/tensor.h>

namespace ClikaRT {
inline namespace v1 {
namespace safetensors {

/// The tensors of a file by name.  Throws FileError when it cannot be read, ValueError when it is not well-formed.
inline std::map<std::string, Tensor> load(const std::string& path) {
    using Archive = detail::Shared<clikart_archive, clikart_archive_retain, clikart_archive_release>;
    const Archive archive(detail::check(clikart_archive_load(path.c_str())));
    std::map<std::string, Tensor> tensors;
    for (std::size_t i = 0; i < clikart_archive_count(archive.get()); ++i) {
        const char* name = detail::check(clikart_archive_name(archive.get(), i));
        tensors.emplace(name, Tensor::adopt(clikart_archive_get(archive.get(), name)));
    }
    return tensors;
}

/// Writes tensors to a file, all or nothing; waits for their values.
inline void save(const std::string& path, const std::map<std::string, Tensor>& tensors) {
    std::vector<const char*> names;
    std::vector<const clikart_tensor*> list;
    for (const auto& [name, tensor] : tensors) {
        names.push_back(name.c_str());
        list.push_back(tensor.handle());
    }
    detail::check(clikart_archive_save(path.c_str(), names.data(), list.data(), list.size()));
}

}  // namespace safetensors
}  // namespace v1
}  // namespace ClikaRT
