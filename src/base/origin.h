// Where a call was made, as far as its caller tells: a tag of a C or C++ program, a file and line of Python.
#pragma once

#include <atomic>
#include <string>

#include "base/object.h"

namespace clikart {

/// Shared by all that one call submitted.  The text may come after the call (Python looks for the line only when work
/// was queued), so whoever shows it asks late.  Any thread may ask, and one may tell, at any time.
class Origin final : public Object {
public:
    Origin() noexcept : Object(ObjectKind::Origin) {}
    /// The first text stays.
    void tell(std::string text) {
        auto* told = new std::string(std::move(text));
        const std::string* none = nullptr;
        if (!text_.compare_exchange_strong(none, told, std::memory_order_release, std::memory_order_relaxed)) delete told;
    }
    /// Null while nobody told.
    const std::string* text() const noexcept { return text_.load(std::memory_order_acquire); }

private:
    ~Origin() override { delete text_.load(std::memory_order_relaxed); }
    std::atomic<const std::string*> text_{nullptr};
};

}  // namespace clikart
