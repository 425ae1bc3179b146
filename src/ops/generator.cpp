#include "ops/generator.h"

#include <random>

namespace clikart {
namespace {

// Made when the library is loaded (see exec/fork.cpp), and never destroyed: threads may draw to the end of the process.
Generator* const own = [] {
    std::random_device entropy;
    return new Generator((uint64_t{entropy()} << 32) | entropy());
}();

}  // namespace

Generator& Generator::of_process() {
    return *own;
}

}  // namespace clikart
