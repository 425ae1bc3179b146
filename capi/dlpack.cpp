// Memory that changes hands as DLPack describes it.
#include <array>
#include <atomic>
#include <optional>

#include "borrow.h"

using namespace clikart;

namespace {

// The layouts and numbers of DLPack 1.1; those of the unversioned structure have been the same since its beginning.
namespace dlpack {

struct Device {
    int32_t type;
    int32_t id;
};
struct DataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};
struct Array {
    void* data;
    Device device;
    int32_t rank;
    DataType dtype;
    const int64_t* shape;
    const int64_t* strides;  // in elements; may be null for row-major elements without gaps
    uint64_t byte_offset;
};
struct Managed {
    Array array;
    void* context;
    void (*deleter)(Managed* self);
};
struct Version {
    uint32_t major;
    uint32_t minor;
};
struct ManagedVersioned {
    Version version;
    void* context;
    void (*deleter)(ManagedVersioned* self);
    uint64_t flags;
    Array array;
};

constexpr int32_t kCpu = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
constexpr const char *kName = "dltensor", *kVersionedName = "dltensor_versioned";

struct Element {
    DType dtype;
    uint8_t code;
    uint8_t bits;
};
constexpr std::array kElements{
    Element{DType::Bool, 6, 8},         Element{DType::UInt8, 1, 8},       Element{DType::UInt16, 1, 16},     Element{DType::UInt32, 1, 32},
    Element{DType::UInt64, 1, 64},      Element{DType::Int8, 0, 8},        Element{DType::Int16, 0, 16},      Element{DType::Int32, 0, 32},
    Element{DType::Int64, 0, 64},       Element{DType::Float16, 2, 16},    Element{DType::BFloat16, 4, 16},   Element{DType::Float32, 2, 32},
    Element{DType::Float64, 2, 64},     Element{DType::Float8E4M3, 10, 8}, Element{DType::Float8E5M2, 12, 8}, Element{DType::Complex64, 5, 64},
    Element{DType::Complex128, 5, 128},
};

}  // namespace dlpack

/// A structure of either kind, and what it refers to.
template <class Structure>
struct Exported {
    Structure managed{};
    Ref<Tensor> tensor;
    Dims shape, strides;
};

template <class Structure>
void* make_exported(Ref<Tensor> tensor, uint64_t flags) {
    auto exported = std::make_unique<Exported<Structure>>();
    exported->shape = tensor->shape();
    exported->strides = numel(tensor->shape()) > 0 ? tensor->strides() : contiguous_strides(tensor->shape());
    Structure& managed = exported->managed;
    managed.context = exported.get();
    managed.deleter = [](Structure* self) { delete static_cast<Exported<Structure>*>(self->context); };
    if constexpr (std::is_same_v<Structure, dlpack::ManagedVersioned>) {
        managed.version = {1, 1};
        managed.flags = flags;
    }
    dlpack::Array& array = managed.array;
    array.data = tensor->data();
    array.device = {dlpack::kCpu, 0};
    array.rank = tensor->rank();
    array.dtype = {};
    for (const dlpack::Element& element : dlpack::kElements) {
        if (element.dtype == tensor->dtype()) array.dtype = {element.code, element.bits, 1};
    }
    if (array.dtype.lanes == 0) fail(ErrorKind::NotImplemented, "to_dlpack: DLPack has no dtype for {}", describe(*tensor));
    array.shape = exported->shape.data();
    array.strides = exported->strides.data();
    exported->tensor = std::move(tensor);
    return &exported.release()->managed;
}

template <class Structure>
clikart_tensor* import(Structure* managed, bool writable, uint64_t token) {
    constexpr const char* who = "from_dlpack";
    const dlpack::Array& array = managed->array;
    if (array.device.type != dlpack::kCpu) {
        fail(ErrorKind::NotImplemented, "{}: the memory is on a device of DLPack's type {}; only the CPU's can be used here", who, array.device.type);
    }
    if (array.rank < 0) fail(ErrorKind::Value, "{}: {} dimensions", who, array.rank);
    const auto rank = static_cast<size_t>(array.rank);
    const Dims shape = checked_shape(array.shape, rank, who);
    std::optional<DType> dtype;
    for (const dlpack::Element& element : dlpack::kElements) {
        if (element.code == array.dtype.code && element.bits == array.dtype.bits && array.dtype.lanes == 1) dtype = element.dtype;
    }
    if (!dtype) {
        fail(ErrorKind::Type, "{}: DLPack's dtype with code {}, {} bits and {} lanes has no equivalent here", who, array.dtype.code, array.dtype.bits,
             array.dtype.lanes);
    }
    const bool empty = numel(shape) == 0;
    if (!empty && !array.data) fail(ErrorKind::Type, "{}: data is NULL", who);
    return to_handle(borrow({.data = empty ? nullptr : static_cast<char*>(array.data) + array.byte_offset,
                             .shape = shape,
                             .strides = array.strides && !empty ? Dims(std::span(array.strides, rank)) : contiguous_strides(shape),
                             .dtype = *dtype,
                             .writable = writable,
                             .release =
                                 [](void* user_data) {
                                     auto* const structure = static_cast<Structure*>(user_data);
                                     if (structure->deleter) structure->deleter(structure);
                                 },
                             .user_data = managed,
                             .token = token},
                            who));
}

std::atomic<int (*)(void*, const char*)> capsule_is_valid{nullptr};
std::atomic<void* (*)(void*, const char*)> capsule_pointer{nullptr};

}  // namespace

void* clikart_tensor_to_dlpack(const clikart_tensor* tensor, bool versioned, bool copy) {
    return guarded([&] {
        constexpr const char* who = "to_dlpack";
        auto exported = Ref<Tensor>::share(&checked_tensor(tensor, who));
        uint64_t flags = 0;
        if (copy) {
            require_value(*exported, who);
            settle_size(*exported, who);
            auto copied = make_tensor(exported->dtype(), exported->shape(), Device{});
            copied->storage().materialize();
            copy_to_host(*exported, copied->data(), who);
            exported = std::move(copied);
            flags |= dlpack::kCopied;
        }
        settle_for_writing(*exported, who, -1);
        exported->storage().show();
        if (!exported->storage().writable()) {
            if (!versioned) fail(ErrorKind::Value, "{}: the memory is read-only, which only a versioned structure can say", who);
            flags |= dlpack::kReadOnly;
        }
        return versioned ? make_exported<dlpack::ManagedVersioned>(std::move(exported), flags) : make_exported<dlpack::Managed>(std::move(exported), flags);
    });
}

clikart_tensor* clikart_tensor_from_dlpack(void* managed, bool versioned, uint64_t token) {
    return guarded([&] {
        if (!managed) fail(ErrorKind::Type, "from_dlpack: the structure is NULL");
        if (!versioned) return import(static_cast<dlpack::Managed*>(managed), true, token);
        auto* const structure = static_cast<dlpack::ManagedVersioned*>(managed);
        if (structure->version.major != 1) {
            fail(ErrorKind::NotImplemented, "from_dlpack: the structure is of DLPack's version {}.{}; known are those of version 1", structure->version.major,
                 structure->version.minor);
        }
        return import(structure, (structure->flags & dlpack::kReadOnly) == 0, token);
    });
}

void clikart_dlpack_delete(void* managed, bool versioned) {
    if (!managed) return;
    const auto call = [](auto* structure) {
        if (structure->deleter) structure->deleter(structure);
    };
    if (versioned) {
        call(static_cast<dlpack::ManagedVersioned*>(managed));
    } else {
        call(static_cast<dlpack::Managed*>(managed));
    }
}

void clikart_dlpack_set_capsule_functions(int (*is_valid)(void* capsule, const char* name), void* (*get_pointer)(void* capsule, const char* name)) {
    capsule_pointer = get_pointer;
    capsule_is_valid = is_valid;
}

void clikart_dlpack_release_capsule(void* capsule) {
    const auto is_valid = capsule_is_valid.load();
    if (!is_valid) return;
    for (const bool versioned : {false, true}) {
        const char* const name = versioned ? dlpack::kVersionedName : dlpack::kName;
        if (is_valid(capsule, name)) clikart_dlpack_delete(capsule_pointer.load()(capsule, name), versioned);
    }
}
