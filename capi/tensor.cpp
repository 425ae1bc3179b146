#include <clikart/ops.h>

#include "boundary.h"
#include "layouts.h"
#include "ops/recorder.h"

using namespace clikart;

void clikart_tensor_retain(const clikart_tensor* tensor) {
    if (tensor) from_handle<Tensor>(tensor)->retain();
}

void clikart_tensor_release(clikart_tensor* tensor) {
    if (tensor) from_handle<Tensor>(tensor)->release();
}

clikart_tensor* clikart_tensor_from_data(const void* data, clikart_dtype dtype, const int64_t* shape, size_t rank) {
    return guarded([&] {
        const Dims dims = checked_shape(shape, rank, "tensor_from_data");
        const auto type = static_cast<DType>(dtype);
        name_of(type);  // throws for a code outside the table
        if (!data && numel(dims) > 0) fail(ErrorKind::Type, "tensor_from_data: data is NULL");
        if (const Device device = thread_device(); device.type == DeviceType::Meta) return to_handle(make_tensor(type, dims, device));
        return to_handle(note_born(tensor_from_host(data, type, dims)));
    });
}

clikart_tensor* clikart_scalar_float(double value) {
    return guarded([&] { return to_handle(scalar(value)); });
}

clikart_tensor* clikart_scalar_int(int64_t value) {
    return guarded([&] { return to_handle(scalar(value)); });
}

clikart_tensor* clikart_scalar_uint(uint64_t value) {
    return guarded([&] { return to_handle(value <= INT64_MAX ? scalar(static_cast<int64_t>(value)) : scalar(value)); });
}

clikart_tensor* clikart_scalar_bool(bool value) {
    return guarded([&] { return to_handle(scalar(value)); });
}

// Metadata of NULL is that of nothing: these have no way to report an error.
clikart_dtype clikart_tensor_dtype(const clikart_tensor* tensor) {
    return tensor ? static_cast<clikart_dtype>(from_handle<Tensor>(tensor)->dtype()) : CLIKART_UNSPECIFIED;
}

size_t clikart_tensor_rank(const clikart_tensor* tensor) {
    return tensor ? static_cast<size_t>(from_handle<Tensor>(tensor)->rank()) : 0;
}

const int64_t* clikart_tensor_shape(const clikart_tensor* tensor) {
    return guarded([&]() -> const int64_t* {
        if (!tensor) return nullptr;
        const Tensor& t = *from_handle<Tensor>(tensor);
        settle_size(t, "shape");
        note_size_asked(t);
        return t.shape().data();
    });
}

const int64_t* clikart_tensor_strides(const clikart_tensor* tensor) {
    if (!tensor) return nullptr;
    const Tensor& t = *from_handle<Tensor>(tensor);
    note_asked(Recorder::Fact::Strides, t);
    return t.strides().data();
}

int64_t clikart_tensor_numel(const clikart_tensor* tensor) {
    return guarded([&]() -> int64_t {
        if (!tensor) return 0;
        const Tensor& t = *from_handle<Tensor>(tensor);
        settle_size(t, "numel");
        note_size_asked(t);
        return t.numel();
    });
}

int64_t clikart_tensor_layouts(const clikart_tensor* const* tensors, size_t n_tensors, int64_t* layouts, size_t room) {
    return guarded([&] {
        OperandList list;
        list.add_list("tensor_layouts", tensors, n_tensors);
        if (room > 0 && !layouts) fail(ErrorKind::Type, "tensor_layouts: the layouts are NULL");
        int64_t count = 0;
        visit_layouts(list.span(), "tensor_layouts", [&](int64_t number) {
            if (static_cast<size_t>(count) < room) layouts[count] = number;
            ++count;
        });
        return count;
    });
}

bool clikart_tensor_is_contiguous(const clikart_tensor* tensor) {
    if (!tensor) return false;
    const Tensor& t = *from_handle<Tensor>(tensor);
    note_asked(Recorder::Fact::Dense, t);
    return !t.size_known() || t.is_contiguous();  // what has its size yet to come will be
}

bool clikart_tensor_is_stand_in(const clikart_tensor* tensor) {
    return tensor && from_handle<Tensor>(tensor)->node;
}

const char* clikart_tensor_device(const clikart_tensor* tensor) {
    return guarded([&]() -> const char* { return tensor ? device_text(from_handle<Tensor>(tensor)->device()) : nullptr; });
}

bool clikart_tensor_size_known(const clikart_tensor* tensor) {
    return !tensor || from_handle<Tensor>(tensor)->size_known();
}

bool clikart_tensor_is_writable(const clikart_tensor* tensor) {
    return tensor && from_handle<Tensor>(tensor)->storage().writable();
}

bool clikart_tensor_shares_storage(const clikart_tensor* a, const clikart_tensor* b) {
    if (!a || !b) return false;
    const Tensor &one = *from_handle<Tensor>(a), &other = *from_handle<Tensor>(b);
    note_asked(Recorder::Fact::SharesMemory, one, &other);
    return one.storage_ref() == other.storage_ref();
}

clikart_status clikart_tensor_status(const clikart_tensor* tensor) {
    return guarded([&] { return static_cast<clikart_status>(status_of(checked_tensor(tensor, "status"))); });
}

int clikart_tensor_is_ready(const clikart_tensor* tensor) {
    return guarded([&] { return is_ready(checked_tensor(tensor, "is_ready")) ? 1 : 0; });
}

int clikart_tensor_start(const clikart_tensor* tensor) {
    return guarded([&] {
        start(checked_tensor(tensor, "start"), "start");
        return 0;
    });
}

int clikart_copy_(clikart_tensor* to, const clikart_tensor* from) {
    return guarded([&] {
        copy_into(checked_tensor(to, "copy_", "the destination"), checked_tensor(from, "copy_", "the source"));
        return 0;
    });
}

int clikart_tensor_wait(const clikart_tensor* tensor, int64_t timeout_ns) {
    return guarded([&] { return settle_within(checked_tensor(tensor, "wait"), "wait", timeout_ns) ? 1 : 0; });
}

int clikart_tensor_wait_writable(const clikart_tensor* tensor, int64_t timeout_ns) {
    return guarded([&] { return settle_for_writing(checked_tensor(tensor, "wait"), "wait", timeout_ns) ? 1 : 0; });
}

void* clikart_tensor_data(const clikart_tensor* tensor) {
    return guarded([&]() -> void* {
        const Tensor& t = checked_tensor(tensor, "data");
        note_value_read(t);
        settle(t, "data");
        t.storage().show();
        if (t.data()) return t.data();
        alignas(kWidestElement) static char nothing[kWidestElement];  // an empty tensor has no memory
        return nothing;
    });
}

int clikart_tensor_copy_to(const clikart_tensor* tensor, void* data, size_t bytes) {
    return guarded([&] {
        Tensor& t = checked_tensor(tensor, "copy_to");
        settle_size(t, "copy_to");
        const auto needed = static_cast<size_t>(bytes_of(t.dtype(), t.numel()));
        if (bytes != needed) fail(ErrorKind::Value, "copy_to: {} bytes of room given for {}, which has {}", bytes, describe(t), needed);
        if (!data && needed > 0) fail(ErrorKind::Type, "copy_to: data is NULL");
        copy_to_host(t, data, "copy_to");
        return 0;
    });
}

int clikart_tensor_copy_box_to(const clikart_tensor* tensor, const int64_t* start, const int64_t* shape, void* data, size_t bytes) {
    return guarded([&] {
        constexpr const char* who = "copy_box_to";
        Tensor& t = checked_tensor(tensor, who);
        require_value(t, who);
        settle_size(t, who);
        const auto rank = static_cast<size_t>(t.rank());
        const Dims box = checked_shape(shape, rank, who);
        if (rank > 0 && !start) fail(ErrorKind::Type, "{}: the start is NULL", who);
        int64_t offset = t.offset();
        for (int d = 0; d < t.rank(); ++d) {
            if (start[d] < 0 || start[d] > t.shape()[d] || box[d] > t.shape()[d] - start[d]) {
                fail(ErrorKind::Index, "{}: {} from {} on is not part of {}", who, to_string(box), to_string(Dims(std::span(start, rank))), describe(t));
            }
            offset += box[d] > 0 ? start[d] * t.strides()[d] : 0;
        }
        const auto needed = static_cast<size_t>(bytes_of(t.dtype(), numel(box)));
        if (is_packed(t.dtype()) && !(box == t.shape()))
            fail(ErrorKind::NotImplemented, "{}: a part of {}, which has two elements in a byte", who, describe(t));
        if (bytes != needed) fail(ErrorKind::Value, "{}: {} bytes of room given for {}, which needs {}", who, bytes, to_string(box), needed);
        if (!data && needed > 0) fail(ErrorKind::Type, "{}: data is NULL", who);
        copy_to_host(*make_view(t, t.dtype(), box, t.strides(), numel(box) > 0 ? offset : t.offset()), data, who);
        return 0;
    });
}
