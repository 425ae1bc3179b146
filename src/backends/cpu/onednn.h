// What everything that goes through oneDNN shares.  Its kernels are made, packed for and run by the calling thread alone.
#pragma once

#include <omp.h>

#include <atomic>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <span>
#include <vector>

#include "exec/signals.h"

namespace clikart::cpu::onednn {

/// Around all that oneDNN makes, packs and runs.  No signal meets it, see SignalsHeld; and it stays on the calling thread.  It opens an
/// OpenMP team wherever the thread's setting allows one, when it makes a kernel as when it runs it.  Pieces are our pool's business, and a kernel made under
/// another setting gives other bits.
class OneThread {
public:
    OneThread() : before_(omp_get_max_threads()) {
        if (before_ != 1) omp_set_num_threads(1);
    }
    ~OneThread() {
        if (before_ != 1) omp_set_num_threads(before_);
    }

private:
    const int before_;
    const SignalsHeld held_;
};

const dnnl::engine& engine();
/// The calling thread's.
dnnl::stream& stream();

/// What a kernel is given when it runs.  oneDNN's objects for it are made once for each thread: setting an address costs a tenth
/// of making them.
class Operands {
public:
    struct Operand {
        int name;  // DNNL_ARG_...
        dnnl::memory::desc description;
    };
    Operands() = default;
    explicit Operands(std::vector<Operand> operands) : operands_(std::move(operands)) {}
    /// Runs a kernel on the operands' addresses.
    void execute(const dnnl::primitive& kernel, std::span<void* const> addresses) const;

private:
    static inline std::atomic<uint64_t> next_id{0};
    uint64_t id_ = next_id.fetch_add(1, std::memory_order_relaxed);  // an address could come again
    std::vector<Operand> operands_;
};

/// Called after each run of a kernel.  Other shapes have other kinds of kernels, with static objects of their own that their
/// first run makes: queued work must be finished before those go; see Waking.
class FirstRun {
public:
    void operator()() noexcept {
        if (!ran_.load(std::memory_order_relaxed) && !ran_.exchange(true, std::memory_order_relaxed)) register_again();
    }

private:
    static void register_again() noexcept;
    std::atomic<bool> ran_{false};
};

/// oneDNN makes static objects when a kernel is first made, packs and runs, and what is registered for the end of the process
/// after that comes first.  So whoever submits work for it first has one kernel of each kind run: then queued work is
/// finished before those objects go, whichever thread ends the process, and whenever.  Made when the library is loaded, and
/// never destroyed; a fork holds its lock, for the child could not go on with what another thread had begun.
class Waking {
public:
    explicit Waking(void (*run_one_of_each_kind)());
    /// Does so unless it was done.
    void wake();

private:
    void (*const run_)();
    std::mutex mutex_;
    std::atomic<bool> awake_{false};
};

}  // namespace clikart::cpu::onednn
