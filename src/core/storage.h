// The memory behind one or more tensors.
#pragma once

#include "base/error.h"
#include "base/object.h"
#include "base/small_vector.h"
#include "core/device.h"
#include "core/timeline.h"

namespace clikart {

/// Memory is taken when the operator that writes it starts (`materialize`), and returned with the last reference.
class Storage final : public Object {
public:
    Storage(size_t bytes, Device device) noexcept : Object(ObjectKind::Storage), bytes_(bytes), device_(device) {}
    ~Storage() override;

    size_t bytes() const noexcept { return bytes_; }
    Device device() const noexcept { return device_; }
    /// Null until materialized.
    void* data() const noexcept { return data_; }
    /// Takes memory from the pool unless there is some.  Throws MemoryError.  Called by the writer alone.
    void materialize();

    /// Set by a failed writer before its ticket settles; read after that.
    Ref<Error> error;

    // Hazards, guarded by the scheduler's submission lock: who wrote last, and who read since.
    Ticket last_write;
    SmallVector<Ticket, 2> reads;

private:
    void* data_ = nullptr;
    const size_t bytes_;
    const Device device_;
};

}  // namespace clikart
