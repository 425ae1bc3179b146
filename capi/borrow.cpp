#include <cstdlib>
#include <mutex>
#include <vector>

#include "borrow.h"
#include "exec/fork.h"
#include "ops/call_site.h"
#include "ops/recorder.h"

using namespace clikart;

namespace {

// Tokens of memory that nobody here needs any more.
std::mutex& mutex = []() -> std::mutex& {  // guards the next; never destroyed, as that
    auto& made = *new std::mutex;
    hold_at_fork(made);
    return made;
}();
std::vector<uint64_t>& returned = *new std::vector<uint64_t>;

/// What a lender left behind: a call to make, or a token to report.
struct Borrowed {
    void (*release)(void* user_data);
    void* user_data;
    uint64_t token;
};

void give_back(void* context) {
    const std::unique_ptr<Borrowed> borrowed(static_cast<Borrowed*>(context));
    if (borrowed->token == 0) {
        const ErrorPutAside aside;
        if (borrowed->release) borrowed->release(borrowed->user_data);
        return;
    }
    std::lock_guard lock(mutex);
    try {
        returned.push_back(borrowed->token);
        attention().returned.store(1, std::memory_order_release);
    } catch (...) {  // no memory for the note: what was lent stays alive
    }
}

/// [lowest, highest) of the elements that shape and strides reach, relative to the first.  Throws when they do not fit.
std::pair<int64_t, int64_t> reach(const Dims& shape, const Dims& strides, const char* who) {
    int64_t low = 0, high = 1;
    for (int d = 0; d < shape.rank(); ++d) {
        if (shape[d] == 0) return {0, 0};
        int64_t span, &end = strides[d] < 0 ? low : high;
        if (__builtin_mul_overflow(strides[d], shape[d] - 1, &span) || __builtin_add_overflow(end, span, &end)) {
            fail(ErrorKind::Value, "{}: shape {} with strides {} reaches further than memory can", who, to_string(shape), to_string(strides));
        }
    }
    return {low, high};
}

}  // namespace

Ref<Tensor> clikart::borrow(const Offer& offer, const char* who) {
    const int64_t size = size_of(offer.dtype);
    note_unrecorded("the program's memory is borrowed");
    const auto address = reinterpret_cast<uintptr_t>(offer.data);
    if (!offer.data && numel(offer.shape) > 0) fail(ErrorKind::Type, "{}: data is NULL", who);
    if (address % std::min(static_cast<size_t>(size), kWidestElement) != 0)
        fail(ErrorKind::Value, "{}: the address {:#x} is not aligned for {}", who, address, name_of(offer.dtype));
    auto [low, high] = reach(offer.shape, offer.strides, who);
    int64_t bytes;
    if (__builtin_sub_overflow(high, low, &bytes) || __builtin_mul_overflow(bytes, size, &bytes) || __builtin_mul_overflow(low, size, &low) ||
        address + static_cast<uintptr_t>(low) + static_cast<uintptr_t>(bytes) < address + static_cast<uintptr_t>(low)) {
        fail(ErrorKind::Value, "{}: shape {} with strides {} reaches further than memory can", who, to_string(offer.shape), to_string(offer.strides));
    }
    auto borrowed = std::make_unique<Borrowed>(Borrowed{offer.release, offer.user_data, offer.token});
    const auto storage = Storage::borrow(reinterpret_cast<void*>(address + static_cast<uintptr_t>(low)), bytes, Device{}, offer.writable);
    auto tensor = make_ref<Tensor>(offer.dtype, offer.shape, offer.strides, -low / size, storage);
    tensor->born_with_data = true;
    storage->set_lender({&give_back, borrowed.release()});  // last: until here the memory is the caller's
    return tensor;
}

clikart_tensor* clikart_tensor_borrow(const clikart_borrow* what) {
    return guarded([&] {
        constexpr const char* who = "tensor_borrow";
        if (!what) fail(ErrorKind::Type, "{}: the description is NULL", who);
        if (what->struct_size < sizeof(clikart_borrow))
            fail(ErrorKind::Value, "{}: struct_size is {}, expected {}", who, what->struct_size, sizeof(clikart_borrow));
        const Dims shape = checked_shape(what->shape, what->rank, who);
        const auto dtype = static_cast<DType>(what->dtype);
        name_of(dtype);  // throws for a code outside the table
        if (is_packed(dtype)) fail(ErrorKind::NotImplemented, "{}: memory of {} elements cannot be borrowed", who, name_of(dtype));
        const Dims strides = what->strides ? Dims(std::span(what->strides, what->rank)) : contiguous_strides(shape);
        return to_handle(borrow({what->data, shape, strides, dtype, what->writable, what->release, what->user_data, what->token}, who));
    });
}

size_t clikart_take_returned(uint64_t* tokens, size_t room) {
    std::lock_guard lock(mutex);
    size_t n = 0;
    while (tokens && n < room && !returned.empty()) {
        tokens[n++] = returned.back();
        returned.pop_back();
    }
    if (returned.empty()) attention().returned.store(0, std::memory_order_release);
    return n;
}
