// The CPU's function table, and the choice of the instruction set.
#include "backends/cpu/simd.h"

#include <cstdlib>
#include <string_view>

#include <hwy/targets.h>

#include "backends/cpu/fused.h"
#include "backends/cpu/kernels.h"
#include "base/error.h"
#include "ops/op_code.h"

namespace clikart {
namespace cpu {
namespace {

struct Simd {
    const char* name;
    int64_t target;
    int64_t better;  // targets that must be off for this one to be chosen
};
constexpr Simd choices[] = {
    {"avx512", HWY_AVX3 | HWY_AVX3_DL, 0},
    {"avx2", HWY_AVX2, HWY_AVX3 | HWY_AVX3_DL},
    {"baseline", HWY_SCALAR, HWY_AVX3 | HWY_AVX3_DL | HWY_AVX2},
};

using Finder = KernelFn (*)(DType);

Finder finder(OpCode op) {
    switch (op) {
#define CLIKART_CASE(op, finder) \
    case OpCode::op: return &finder;
        CLIKART_CPU_KERNELS(CLIKART_CASE)
#undef CLIKART_CASE
        default: return nullptr;
    }
}

// Chosen when the library is loaded, see exec/fork.cpp.
const bool simd_as_wished = [] {
    const char* const name = std::getenv("CLIKA_SIMD");
    return !name || set_simd(name);
}();

KernelFn find_kernel(int32_t op, int32_t dtype) {
    if (!simd_as_wished) {
        fail(ErrorKind::Value, "CLIKA_SIMD is '{}'; this machine and build have baseline up to {}", std::getenv("CLIKA_SIMD"), simd_name());
    }
    const Finder find = finder(static_cast<OpCode>(op));
    return find ? find(static_cast<DType>(dtype)) : nullptr;
}

}  // namespace

const char* simd_name() {
    const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
    for (const Simd& s : choices) {
        if (supported & s.target) return s.name;
    }
    return "baseline";
}

bool set_simd(const char* name) {
    hwy::SetSupportedTargetsForTest(0);
    for (const Simd& s : choices) {
        if (std::string_view(name) != s.name) continue;
        const int64_t supported = hwy::SupportedTargets() & HWY_TARGETS;
        if (!(supported & s.target) && s.target != HWY_SCALAR) return false;
        hwy::SetSupportedTargetsForTest(supported & ~s.better);
        hwy::GetChosenTarget().Update(hwy::SupportedTargets());
        return true;
    }
    return false;
}

}  // namespace cpu

const Backend& cpu_backend() {
    static constexpr Backend backend{sizeof(Backend),   "cpu",           [] { return int32_t{1}; }, &cpu::find_kernel,  &cpu::prepare_fused,
                                     &cpu::start_fused, &cpu::run_fused, &cpu::finish_fused,        &cpu::release_fused};
    return backend;
}

}  // namespace clikart
