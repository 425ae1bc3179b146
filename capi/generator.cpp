#include "ops/generator.h"

#include "boundary.h"
#include "ops/recorder.h"

using namespace clikart;

namespace {

Generator& generator_or_own(const clikart_generator* generator) {
    Generator* const given = checked_generator(generator);
    return given ? *given : Generator::of_process();
}

}  // namespace

clikart_generator* clikart_generator_create(uint64_t seed) {
    return guarded([&] {
        note_unrecorded("a random generator is made");
        return reinterpret_cast<clikart_generator*>(make_ref<Generator>(seed).leak());
    });
}

void clikart_generator_retain(const clikart_generator* generator) {
    if (generator) from_handle<Generator>(generator)->retain();
}

void clikart_generator_release(clikart_generator* generator) {
    if (generator) from_handle<Generator>(generator)->release();
}

int clikart_generator_state(const clikart_generator* generator, uint64_t* seed, uint64_t* offset) {
    return guarded([&] {
        note_unrecorded("the state of a random generator is read");
        const Generator::State state = generator_or_own(generator).state();
        if (seed) *seed = state.seed;
        if (offset) *offset = state.offset;
        return 0;
    });
}

int clikart_generator_set_state(clikart_generator* generator, uint64_t seed, uint64_t offset) {
    return guarded([&] {
        note_unrecorded("the state of a random generator is set");
        generator_or_own(generator).set_state({seed, offset});
        return 0;
    });
}
