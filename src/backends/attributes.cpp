#include "backends/api.h"
#include "base/error.h"
#include "core/dims.h"

namespace clikart {
namespace {

void require_room(const Attributes& attributes, size_t values) {
    const bool fits = attributes.count < Attributes::kMaxItems && values <= static_cast<size_t>(Attributes::kMaxValues - attributes.used);
    if (!fits) fail(ErrorKind::Value, "attributes: there are more than {}, or more than {} numbers in them", Attributes::kMaxItems, Attributes::kMaxValues);
}

}  // namespace

void Attributes::add(int64_t value) {
    require_room(*this, 1);
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
        require_room(*this, 0);
        items[count++] = {used, -1};
    }
}

void Attributes::add_optional(const double* value) {
    if (value) {
        add(*value);
    } else {
        require_room(*this, 0);
        items[count++] = {used, -1};
    }
}

static_assert(Attributes::kMaxEntries == kMaxRank);

void Attributes::add_list(const char* op, const char* name, const int64_t* list, size_t n, size_t limit) {
    if (n > limit) fail(ErrorKind::Value, "{}: {} has {} entries, at most {} dimensions are possible", op, name, n, kMaxRank);
    if (n > 0 && !list) fail(ErrorKind::Value, "{}: {} is NULL", op, name);
    require_room(*this, n);
    items[count++] = {used, static_cast<int32_t>(n)};
    for (size_t i = 0; i < n; ++i) values[used++] = list[i];
}

void Attributes::add_optional_list(const char* op, const char* name, const int64_t* list, size_t n) {
    if (list) {
        add_list(op, name, list, n);
    } else {
        require_room(*this, 0);
        items[count++] = {used, -1};
    }
}

}  // namespace clikart
