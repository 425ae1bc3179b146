#include "base/error.h"

#include <new>

namespace clikart {
namespace {

// Made while memory can still be had, for the moment when it cannot.
const Ref<Error> out_of_memory = make_ref<Error>(ErrorKind::Memory, "out of memory");

}  // namespace

std::string Error::valid_utf8(std::string text) {
    for (size_t i = 0; i < text.size();) {
        const auto first = static_cast<unsigned char>(text[i]);
        const size_t length = first < 0x80 ? 1 : first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : first >= 0xF0 && first < 0xF5 ? 4 : 0;
        bool valid = length > 0 && i + length <= text.size();
        for (size_t k = 1; valid && k < length; ++k) valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
        if (!valid) text[i] = '?';
        i += valid ? length : 1;
    }
    return text;
}

const std::string& Error::message() const noexcept {
    if (const std::string* placed = placed_.load(std::memory_order_acquire)) return *placed;
    const std::string* const place = origin_ ? origin_->text() : nullptr;
    if (!place) return message_;
    try {
        auto* made = new std::string(valid_utf8(fmt::format("{}; called at {}", message_, *place)));
        const std::string* other = nullptr;
        if (placed_.compare_exchange_strong(other, made, std::memory_order_acq_rel)) return *made;
        delete made;
        return *other;
    } catch (...) {
        return message_;
    }
}

Ref<Error> current_error() noexcept {
    try {
        try {
            throw;
        } catch (const Failure& failure) {
            return failure.error();
        } catch (const std::bad_alloc&) {
            return out_of_memory;
        } catch (const std::exception& error) {
            return make_ref<Error>(ErrorKind::Error, error.what());
        } catch (...) {
            return make_ref<Error>(ErrorKind::Error, "an exception of unknown type");
        }
    } catch (...) {
        return out_of_memory;
    }
}

}  // namespace clikart
