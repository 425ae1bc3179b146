#include "backends/cpu/onednn.h"

#include <unordered_map>

#include "base/small_vector.h"
#include "exec/fork.h"
#include "exec/shutdown.h"

namespace clikart::cpu::onednn {

// Never destroyed: kernels may still run while static destructors do.
const dnnl::engine& engine() {
    static const dnnl::engine& cpu = []() -> const dnnl::engine& {
        // Which kernel its cache hands out for a loosely described operand depends on what was made before; ours does not.
        dnnl::set_primitive_cache_capacity(0);
        return *new dnnl::engine(dnnl::engine::kind::cpu, 0);
    }();
    return cpu;
}

dnnl::stream& stream() {
    thread_local dnnl::stream stream(engine());
    return stream;
}

void Operands::execute(const dnnl::primitive& kernel, std::span<void* const> addresses) const {
    constexpr size_t kKept = 64;
    thread_local std::unordered_map<uint64_t, std::vector<dnnl::memory>> kept;
    auto it = kept.find(id_);
    if (it == kept.end()) {
        if (kept.size() >= kKept) kept.clear();
        it = kept.emplace(id_, std::vector<dnnl::memory>()).first;
        for (const Operand& operand : operands_) it->second.emplace_back(operand.description, engine(), nullptr);
    }
    SmallVector<dnnl_exec_arg_t, 6> list;
    for (size_t i = 0; i < operands_.size(); ++i) {
        it->second[i].set_data_handle(addresses[i]);
        list.push_back({operands_[i].name, it->second[i].get()});
    }
    dnnl::error::wrap_c_api(dnnl_primitive_execute(kernel.get(), stream().get(), static_cast<int>(list.size()), list.data()), "could not execute");
}

void FirstRun::register_again() noexcept {
    constexpr int kKinds = 256;  // far more than there are
    static std::atomic<int> registered{0};
    if (registered.fetch_add(1, std::memory_order_relaxed) < kKinds) shut_down_at_exit();
}

Waking::Waking(void (*run_one_of_each_kind)()) : run_(run_one_of_each_kind) {
    hold_at_fork(mutex_);
}

void Waking::wake() {
    if (awake_.load(std::memory_order_acquire)) return;
    std::lock_guard lock(mutex_);
    if (awake_.load(std::memory_order_relaxed)) return;
    run_();
    awake_.store(true, std::memory_order_release);
}

}  // namespace clikart::cpu::onednn
