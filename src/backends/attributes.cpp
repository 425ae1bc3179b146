#include "backends/api.h"
#include "base/error.h"
#include "core/dims.h"

namespace clikart {

void Attributes::add(int64_t value) {
    items[count++] = {used, 1};
    values[used++] = value;
}

void Attributes::add(double value) {
    add(std::bit_cast<int64_t>(value));
}

void Attributes::add_optional(const int64_t* value) {
    if (value) {
        add(*value);
    } else {
        items[count++] = {used, -1};
    }
}

void Attributes::add_optional(const double* value) {
    if (value) {
        add(*value);
    } else {
        items[count++] = {used, -1};
    }
}

static_assert(Attributes::kMaxEntries == kMaxRank);

void Attributes::add_list(const char* op, const char* name, const int64_t* list, size_t n, size_t limit) {
    if (n > limit) fail(ErrorKind::Value, "{}: {} has {} entries, at most {} dimensions are possible", op, name, n, kMaxRank);
    if (n > 0 && !list) fail(ErrorKind::Value, "{}: {} is NULL", op, name);
    items[count++] = {used, static_cast<int32_t>(n)};
    for (size_t i = 0; i < n; ++i) values[used++] = list[i];
}

void Attributes::add_optional_list(const char* op, const char* name, const int64_t* list, size_t n) {
    if (list) {
        add_list(op, name, list, n);
    } else {
        items[count++] = {used, -1};
    }
}

}  // namespace clikart
