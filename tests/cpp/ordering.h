// What the tests of the memory and ordering model share: gates instead of sleeps, and work that does what a test says.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

#include "exec/stream.h"
#include "ops/settle.h"

namespace clikart {

/// Something to wait for, and to let go.
class Gate {
public:
    void open() {
        const std::lock_guard lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void pass() {
        std::unique_lock lock(mutex_);
        ++reached_;
        changed_.notify_all();
        changed_.wait(lock, [this] { return open_; });
    }
    void wait_until_reached(int times = 1) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return reached_ >= times; });
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
    int reached_ = 0;
};

inline constexpr double kLong = 1e9;  // never run on the caller

class TestWork final : public Work {
public:
    TestWork(std::function<void()> body, double nanoseconds = kLong) : body_(std::move(body)) { cost = nanoseconds; }
    TestWork(TestWork&& other) : body_(std::move(other.body_)) {
        for (auto& input : other.inputs) inputs.push_back(std::move(input));
        for (auto& output : other.outputs) outputs.push_back(std::move(output));
        cost = other.cost;
        in_place = other.in_place;
    }
    void run() override { body_(); }
    const char* name() const noexcept override { return "test"; }

private:
    std::function<void()> body_;
};

inline Ref<Stream> new_stream() {
    return make_ref<Stream>(Device{});
}

inline Ref<Tensor> new_tensor() {
    return make_tensor(DType::Float32, Dims{16}, Device{});
}

struct Operands {
    std::vector<Ref<Tensor>> reads{}, writes{};
    bool in_place = false;
};

/// Submits `body`; true when it is still to run.
inline bool submit(const Ref<Stream>& stream, const Operands& operands, std::function<void()> body, double nanoseconds = kLong, bool at_once = false) {
    TestWork work(std::move(body), nanoseconds);
    for (const auto& t : operands.reads) work.inputs.push_back(t);
    for (const auto& t : operands.writes) work.outputs.push_back(t);
    work.in_place = operands.in_place;
    return stream->submit(std::move(work), at_once);
}

inline const std::function<void()> nothing = [] {};

inline bool raises(const Tensor& tensor) {
    try {
        settle(tensor, "test");
    } catch (const Failure&) {
        return true;
    }
    return false;
}

}  // namespace clikart
