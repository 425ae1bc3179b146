#include "base/error.h"

#include <new>

namespace clikart {
namespace {

// Made while memory can still be had, for the moment when it cannot.
const Ref<Error> out_of_memory = make_ref<Error>(ErrorKind::Memory, "out of memory");

}  // namespace

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
