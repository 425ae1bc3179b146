#include <string>

#include "backends/cpu/simd.h"
#include "boundary.h"
#include "core/memory.h"
#include "ops/kernel.h"
#include "ops/profile.h"

using namespace clikart;

uint32_t clikart_version(void) {
    return CLIKART_VERSION;
}

const char* clikart_build_report(void) {
    return guarded([] {
        static const std::string report = fmt::format("version: {}.{}.{}\ncompiler: {}\nsimd: {}\nthreads: {}\n", CLIKART_VERSION_MAJOR, CLIKART_VERSION_MINOR,
                                                      CLIKART_VERSION_PATCH, __VERSION__, cpu::simd_name(), ThreadPool::instance().threads());
        return report.c_str();
    });
}

int64_t clikart_memory_current(void) {
    return memory_use().current;
}

int64_t clikart_memory_peak(void) {
    return memory_use().peak;
}

void clikart_memory_reset_peak(void) {
    reset_memory_peak();
}

int64_t clikart_memory_cached(void) {
    return memory_use().cached;
}

int64_t clikart_memory_set_limit(int64_t bytes) {
    const int64_t before = memory_use().limit;
    set_memory_limit(bytes < 0 ? INT64_MAX : bytes);
    return before == INT64_MAX ? -1 : before;
}

int clikart_profile_begin(void) {
    return guarded([] {
        profile::begin();
        return 0;
    });
}

int clikart_profile_end(const char* path) {
    return guarded([&] {
        profile::end(checked_text(path, "profile", "the path"));
        return 0;
    });
}

int clikart_fail_kernel(clikart_op_code op, int64_t after) {
    return guarded([&] {
        fail_kernel(static_cast<OpCode>(op), after);
        return 0;
    });
}

void clikart_memory_trim(void) {
    trim_memory();
}
