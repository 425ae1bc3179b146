#include "boundary.h"
#include "io/safetensors.h"

using namespace clikart;

namespace {

class Archive final : public Object {
public:
    explicit Archive(std::vector<safetensors::Entry> entries) : Object(ObjectKind::Archive), entries(std::move(entries)) {}
    const std::vector<safetensors::Entry> entries;
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
        const auto& entries = checked_archive(archive, "archive_get").entries;
        const std::string_view wanted = checked_text(name, "archive_get", "the name");
        for (const auto& entry : entries) {
            if (entry.name == wanted) return to_handle(entry.tensor);
        }
        fail(ErrorKind::Value, "archive_get: no tensor is named '{}'", wanted);
    });
}

int clikart_archive_save(const char* path, const char* const* names, const clikart_tensor* const* tensors, size_t n_tensors) {
    return guarded([&] {
        const std::string to = checked_text(path, "save", "the path");
        const OperandList list("save", tensors, n_tensors);
        if (n_tensors > 0 && !names) fail(ErrorKind::Type, "save: the list of names is NULL");
        std::vector<safetensors::Entry> entries;
        for (size_t i = 0; i < n_tensors; ++i) {
            Ref<Tensor> t = Ref<Tensor>::share(list.span()[i]);
            require_value(*t, "save");
            if (!t->is_contiguous()) t = call(OpCode::Copy, list.span().subspan(i, 1), Attributes{});
            settle(*t, "save");
            entries.push_back({checked_text(names[i], "save", "a name"), std::move(t)});
        }
        safetensors::save(to, entries);
        return 0;
    });
}
