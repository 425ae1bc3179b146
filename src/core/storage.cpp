#include "core/storage.h"

#include "core/memory.h"

namespace clikart {

Storage::~Storage() {
    deallocate(data_, bytes_);
}

void Storage::materialize() {
    if (!data_) data_ = allocate(bytes_);
}

}  // namespace clikart
