#include <string_view>
#include <unordered_map>

#include "boundary.h"
#include "exec/host_read.h"
#include "io/safetensors.h"

using namespace clikart;

namespace {

class Archive final : public Object {
public:
    explicit Archive(std::vector<safetensors::Entry> list) : Object(ObjectKind::Archive), entries(std::move(list)) {
        for (const auto& entry : entries) by_name.emplace(entry.name, entry.tensor.get());
    }
    const std::vector<safetensors::Entry> entries;
    std::unordered_map<std::string_view, Tensor*> by_name;
};

const Archive& checked_archive(const clikart_archive* archive, const char* who) {
    return checked<Archive>(archive, ObjectKind::Archive, who, "the archive");
}

}  // namespace

clikart_archive* clikart_archive_load(const char* path) {
    return guarded([&] { return reinterpret_cast<clikart_archive*>(make_ref<Archive>(safetensors::load(checked_text(path, "load", "the path"))).leak()); });
}

void clikart_archive_retain(const clikart_archive* archive) {
    if (archive) from_handle<Archive>(archive)->retain();
}

void clikart_archive_release(clikart_archive* archive) {
    if (archive) from_handle<Archive>(archive)->release();
}

size_t clikart_archive_count(const clikart_archive* archive) {
    return archive ? from_handle<Archive>(archive)->entries.size() : 0;
}

const char* clikart_archive_name(const clikart_archive* archive, size_t index) {
    return guarded([&] {
        const auto& entries = checked_archive(archive, "archive_name").entries;
        if (index >= entries.size()) fail(ErrorKind::Index, "archive_name: index {} is out of range, there are {}", index, entries.size());
        return entries[index].name.c_str();
    });
}

clikart_tensor* clikart_archive_get(const clikart_archive* archive, const char* name) {
    return guarded([&] {
        const auto& by_name = checked_archive(archive, "archive_get").by_name;
        const std::string_view wanted = checked_text(name, "archive_get", "the name");
        if (const auto it = by_name.find(wanted); it != by_name.end()) return to_handle(Ref<Tensor>::share(it->second));
        fail(ErrorKind::Value, "archive_get: no tensor is named '{}'", wanted);
    });
}

int clikart_archive_save(const char* path, const char* const* names, const clikart_tensor* const* tensors, size_t n_tensors) {
    return guarded([&] {
        const std::string to = checked_text(path, "save", "the path");
        OperandList list;
        list.add_list("save", tensors, n_tensors);
        if (n_tensors > 0 && !names) fail(ErrorKind::Type, "save: the list of names is NULL");
        std::vector<safetensors::Entry> entries;
        std::vector<Storage*> storages;
        for (size_t i = 0; i < n_tensors; ++i) {
            entries.push_back({checked_text(names[i], "save", "a name"), dense_now(*list.span()[i], "save")});
            storages.push_back(&entries.back().tensor->storage());
        }
        const HostRead reading(storages);
        safetensors::save(to, entries);
        return 0;
    });
}
