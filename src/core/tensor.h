// A tensor: shape, dtype and strides over a storage.  Its metadata never changes after it was made, except that the
// first size of a result whose size depends on data becomes known when the operator ran.
#pragma once

#include "core/dims.h"
#include "core/dtype.h"
#include "core/storage.h"

namespace clikart {

class Tensor final : public Object {
public:
    Tensor(DType dtype, const Dims& shape, const Dims& strides, int64_t offset, Ref<Storage> storage) noexcept
        : Object(ObjectKind::Tensor), dtype_(dtype), shape_(shape), strides_(strides), offset_(offset), storage_(std::move(storage)) {}

    DType dtype() const noexcept { return dtype_; }
    const Dims& shape() const noexcept { return shape_; }
    /// In elements.
    const Dims& strides() const noexcept { return strides_; }
    /// Of the first element, in elements from the storage's start.
    int64_t offset() const noexcept { return offset_; }
    Storage& storage() const noexcept { return *storage_; }
    const Ref<Storage>& storage_ref() const noexcept { return storage_; }
    Device device() const noexcept { return storage_->device(); }
    int rank() const noexcept { return shape_.rank(); }
    int64_t numel() const noexcept { return clikart::numel(shape_); }
    bool is_contiguous() const noexcept { return clikart::is_contiguous(shape_, strides_); }

    /// The address of the first element; null until the storage is materialized.
    void* data() const noexcept {
        char* const base = static_cast<char*>(storage_->data());
        return base ? base + bytes_of(dtype_, offset_) : nullptr;
    }

    /// False while the first size is to be found by the operator that makes the tensor; shape()[0] is then 0 and means
    /// nothing, all else holds.  To be looked at before shape() and numel().
    bool size_known() const noexcept { return size_known_.load(std::memory_order_acquire); }
    /// Called on a fresh tensor.
    void leave_size_open() noexcept { size_known_.store(false, std::memory_order_relaxed); }
    /// Called once by the operator that found it, before its ticket settles.  Takes the memory.  Throws MemoryError.
    void find_size(int64_t size);

    /// A Python, C or C++ number: 0-d, its value known, and giving way to tensors in type promotion.
    bool weak = false;
    /// Made from a number, so it never changes; a weak tensor, or what scalar_as() made of one.
    bool number = false;
    /// Born with data, rather than computed by an operator.
    bool born_with_data = false;
    /// The stream the producing operator rode; null for a tensor born with data.
    Ref<Timeline> stream;
    /// Non-null while the tensor stands for a value of a graph that is recorded: the graph node it is an output of.
    /// The node is an object of the graph layer, which this layer only keeps alive.
    Ref<Object> node;
    /// Where a capture that runs what it records knows a tensor that has a value: the capture's number, 0 for none, and a place
    /// in its list.
    struct Recorded {
        uint64_t capture = 0;
        size_t place = 0;
    } recorded;

private:
    ~Tensor() override { Storage::let_go(std::move(storage_)); }

    const DType dtype_;
    Dims shape_;
    const Dims strides_;
    const int64_t offset_;
    Ref<Storage> storage_;
    std::atomic<bool> size_known_{true};
};

/// A contiguous tensor over a fresh storage that has no memory yet.
Ref<Tensor> make_tensor(DType dtype, const Dims& shape, Device device);
/// The same memory seen through other metadata.
Ref<Tensor> make_view(const Tensor& of, DType dtype, const Dims& shape, const Dims& strides, int64_t offset);
/// Makes every byte of a fresh bool tensor 0 or 1: kernels count on it, and what comes from outside may be anything.
void normalize_bools(Tensor& tensor) noexcept;
/// A tensor that copies `data`, contiguous elements on the host.
Ref<Tensor> tensor_from_host(const void* data, DType dtype, const Dims& shape);

/// A number as a weak 0-d tensor; `value` must be bool, int64_t or double.
template <class T>
Ref<Tensor> scalar(T value);
/// The value of a weak tensor.
double scalar_value(const Tensor& weak);
/// A weak tensor's value as a 0-d tensor of `dtype`, converted here and now as a cast would.
Ref<Tensor> scalar_as(const Tensor& weak, DType dtype);

/// Whether a weak tensor's value, without its fraction, is among the numbers of an integer dtype; true for other dtypes.
bool scalar_fits(const Tensor& weak, DType dtype);

/// "float32 [2, 3]", the way errors show a tensor; an open size is shown as "?".
std::string describe(const Tensor& tensor);

}  // namespace clikart
