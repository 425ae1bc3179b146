// The asynchronous page through the C++ API: streams and placement, states, callbacks, scopes, borrowed memory, writing in
// place, late failures.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>

#include "heavy.h"

using namespace ClikaRT;
using Status = Tensor::Status;

namespace {

std::string message_of(const std::function<void()>& f) {
    try {
        f();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

}  // namespace

// ---- streams and placement -------------------------------------------------------------------------------------------

TEST(Placement, TheLaw) {
    const Stream worker = Stream::create(Device::cpu()), other = Stream::create(Device::cpu());
    const Stream lane = StreamOrDevice(Device::cpu()).resolve();
    EXPECT_EQ(lane, Stream::current());
    EXPECT_EQ(StreamOrDevice().resolve(), lane);
    EXPECT_EQ(StreamOrDevice(worker).resolve(), worker);
    EXPECT_FALSE(lane.is_default());
    {
        const StreamScope scope(worker);
        EXPECT_EQ(StreamOrDevice(Device::cpu()).resolve(), worker);
        EXPECT_EQ(ops::ones({2}, DataType::Float32, Device::cpu()).stream(), worker);
        EXPECT_EQ(ops::ones({2}).stream(), worker);
        EXPECT_EQ(ops::ones({2}, DataType::Float32, other).stream(), other);  // a stream is used as given
        const Tensor x = ops::ones({2}, DataType::Float32, other);
        EXPECT_EQ(ops::add(x, x).stream(), worker);  // on the bare device of its inputs
        {
            const StreamScope inner(other);
            EXPECT_EQ(ops::ones({2}).stream(), other);
        }
        EXPECT_EQ(ops::ones({2}).stream(), worker);
        std::thread([&] { EXPECT_NE(ops::ones({2}).stream(), worker); }).join();
    }
    EXPECT_EQ(ops::ones({2}).stream(), lane);
    EXPECT_THROW(Stream::create(Device("cuda:0")), NotImplementedError);
    EXPECT_THROW(Stream::create(Device::meta()), NotImplementedError);
    EXPECT_THROW(StreamOrDevice(Device("toaster")).resolve(), ValueError);
}

TEST(Placement, TheDefaultStreamIsSynchronousAndOne) {
    const Stream d = Stream::default_stream(Device::cpu());
    EXPECT_TRUE(d.is_default());
    EXPECT_EQ(d, Stream::default_stream(Device::cpu()));
    const Tensor x = ops::full({2048, 2048}, 0.5, DataType::Float32, d);
    EXPECT_TRUE(d.query_idle() && x.is_ready() && x.stream().is_default());
    EXPECT_THROW(ops::full({std::int64_t{1} << 50}, 1.0, DataType::Float32, d), MemoryError);  // raised at the call
    const StreamScope scope(d);
    EXPECT_TRUE(heavy().is_ready());
}

TEST(Placement, DeviceScopeAndMeta) {
    Tensor x, y;
    {
        const DeviceScope scope(Device::meta());
        x = ops::ones({2, 3});
        const DeviceScope inner(Device::cpu());
        y = ops::ones({3, 4});
    }
    EXPECT_EQ(y.item_as_vec<float>().size(), 12u);
    EXPECT_EQ(x.device(), Device::meta());
    EXPECT_EQ(x.status(), Status::Unscheduled);
    EXPECT_THROW(x.synchronize(), Error);
    EXPECT_THROW(ops::matmul(x, y), ValueError);  // on two devices
    const Tensor z = ops::matmul(ops::add(x, 1), ops::zeros({3, 5}, DataType::Float32, Device::meta()));
    EXPECT_EQ(z.shape(), (Shape{2, 5}));
    EXPECT_EQ(z.device(), Device::meta());
    EXPECT_EQ(ops::permute(z, {1, 0}).shape(), (Shape{5, 2}));
    EXPECT_NE(message_of([&] { z.item_as_vec<float>(); }).find("no storage"), std::string::npos);
    EXPECT_THROW(ops::nonzero(z), Error);
    EXPECT_THROW(DeviceScope(Device("cuda:0")), NotImplementedError);
}

// ---- waiting and states ----------------------------------------------------------------------------------------------

TEST(Waiting, StatesAndTimeouts) {
    const float one = 1;
    EXPECT_EQ(Tensor::from_data(&one, {}).status(), Status::Available);
    const Tensor x = heavy();
    EXPECT_EQ(x.status(), Status::Evaluated);
    EXPECT_FALSE(x.is_ready());
    EXPECT_FALSE(x.wait_for(std::chrono::microseconds(10)));
    EXPECT_FALSE(x.stream().wait_for(std::chrono::microseconds(10)));
    EXPECT_TRUE(x.wait_for(std::chrono::hours(1)));
    EXPECT_TRUE(x.is_ready());
    EXPECT_TRUE(x.stream().wait_for(std::chrono::nanoseconds(0)));
    std::vector<Tensor> on_other_threads(3);
    for (auto& t : on_other_threads) std::thread([&] { t = heavy(); }).join();
    ASSERT_EQ(clikart_device_wait("cpu", -1), 1);
    for (auto& t : on_other_threads) EXPECT_TRUE(t.is_ready());
}

TEST(Waiting, SizesThatDependOnData) {
    const Tensor x = ops::mul(heavy(), 1024);  // ones
    const Tensor places = ops::nonzero(ops::sub(ops::slice(ops::reshape(x, {-1}), 0, 0, 70000), ops::arange(0, 70000)));
    EXPECT_FALSE(clikart_tensor_size_known(places.handle()));
    EXPECT_EQ(clikart_tensor_rank(places.handle()), 2u);
    EXPECT_EQ(clikart_tensor_strides(places.handle())[0], 1);
    EXPECT_EQ(ops::sum(places).item<std::int64_t>(), 70000LL * 69999 / 2 - 1);  // settles at dispatch; all but place 1
    EXPECT_EQ(places.shape(), (Shape{69999, 1}));
    EXPECT_EQ(ops::nonzero(ops::zeros({3, 4})).shape(), (Shape{0, 2}));
    EXPECT_EQ(ops::nonzero(ops::ones({})).shape(), (Shape{1, 0}));
    clikart_fail_kernel(CLIKART_OP_NONZERO, 0);
    const Tensor failed = ops::nonzero(x);
    EXPECT_THROW(failed.shape(), Error);
    EXPECT_THROW(failed.numel(), Error);
    EXPECT_THROW(ops::add(failed, 1), Error);
}

// ---- callbacks -------------------------------------------------------------------------------------------------------

TEST(Callbacks, FireOnceOnThePoolOrInline) {
    std::promise<std::thread::id> where;
    std::atomic<int> fired{0};
    {
        const Tensor x = heavy();
        x.on_complete([&](const Tensor& t) {
            ++fired;
            EXPECT_NEAR(t.item_as_vec<float>()[0], 1.0f / 1024, 1e-8f);
            where.set_value(std::this_thread::get_id());
        });
    }  // the storage lives on for the callback
    EXPECT_NE(where.get_future().get(), std::this_thread::get_id());
    const Tensor done = ops::ones({2});
    done.synchronize();
    std::thread::id here;
    done.on_complete([&](const Tensor&) { here = std::this_thread::get_id(); });
    EXPECT_EQ(here, std::this_thread::get_id());
    EXPECT_EQ(fired, 1);
}

TEST(Callbacks, KeepTheOrderOfOneResultAndAreCounted) {
    std::atomic<int> fired{0}, destroyed{0};
    struct Counted {
        std::atomic<int>& destroyed;
        std::atomic<int>& fired;
        std::shared_ptr<int> alive = std::make_shared<int>(0);
        ~Counted() {
            if (alive) ++destroyed;
        }
        Counted(std::atomic<int>& d, std::atomic<int>& f) : destroyed(d), fired(f) {}
        Counted(Counted&& other) noexcept : destroyed(other.destroyed), fired(other.fired), alive(std::move(other.alive)) {}
        void operator()(const Tensor&) { ++fired; }
    };
    constexpr int kThreads = 4, kEach = 200;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
            Tensor x = ops::ones({64, 64});
            for (int i = 0; i < kEach; ++i) {
                x = ops::matmul(x, x);
                x.on_complete(Counted(destroyed, fired));
                x = ops::mul(x, 1.0 / 64);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    clikart_finish();  // calls what is due
    EXPECT_EQ(fired, kThreads * kEach);
    EXPECT_EQ(destroyed, kThreads * kEach);
}

TEST(Callbacks, MayBlockSubmitAndRead) {
    // The callbacks may still be in these when the test is over.
    std::promise<void> go;
    const std::shared_future<void> may_end = go.get_future().share();
    const auto value = std::make_shared<std::promise<float>>();
    const Tensor x = heavy();
    x.on_complete([may_end](const Tensor&) { may_end.wait(); });
    x.on_complete([value](const Tensor& t) {
        Tensor y = t;
        for (int i = 0; i < 600; ++i) y = ops::add(y, 1);  // more than may be in flight on a stream
        value->set_value(ops::amax(y).item<float>());
    });
    EXPECT_NEAR(value->get_future().get(), 600, 1);  // beside the first, which blocks
    EXPECT_NEAR(ops::amax(ops::add(x, x)).item<float>(), 2.0f / 1024, 1e-8f);
    go.set_value();
}

TEST(Callbacks, FireOnFailureAndWhatTheyThrowGoesToTheHook) {
    std::mutex mutex;
    std::vector<std::string> said;
    set_log_hook([&](int level, const char* text) {
        const std::lock_guard lock(mutex);
        if (level >= CLIKART_LOG_ERROR) said.emplace_back(text);
    });
    const Tensor bad = ops::full({std::int64_t{1} << 50}, 1.0);
    std::promise<std::string> message;
    ASSERT_EQ(clikart_tensor_on_complete(
                  bad.handle(),
                  [](const clikart_tensor*, const clikart_error* error, void* promise) {
                      static_cast<std::promise<std::string>*>(promise)->set_value(clikart_error_message(error));
                  },
                  &message, nullptr),
              0);
    EXPECT_EQ(message.get_future().get().substr(0, 20), "full: out of memory:");
    EXPECT_THROW(Stream::current().synchronize(), MemoryError);  // a callback may not look at the error it is given
    const Tensor x = heavy();
    std::promise<void> after;
    x.on_complete([](const Tensor&) { throw std::runtime_error("of the user"); });
    x.on_complete([](const Tensor&) { throw 1; });
    x.on_complete([&](const Tensor&) { after.set_value(); });
    after.get_future().get();
    clikart_finish();
    set_log_hook({});
    const std::lock_guard lock(mutex);
    std::sort(said.begin(), said.end());  // they run beside each other
    EXPECT_EQ(said, (std::vector<std::string>{"on_complete: the callback threw something that is no std::exception",
                                              "on_complete: the callback threw: of the user"}));
}

TEST(Callbacks, AnErrorOfACallbackIsNotTheCallersError) {
    EXPECT_EQ(clikart_stream_create("toaster"), nullptr);  // leaves an error in this thread
    ops::ones({2}).on_complete([](const Tensor&) { EXPECT_EQ(clikart_error_take(), nullptr); });
    clikart_error* const mine = clikart_error_take();
    EXPECT_NE(std::string(clikart_error_message(mine)).find("toaster"), std::string::npos);
    clikart_error_release(mine);
}

// ---- scopes ----------------------------------------------------------------------------------------------------------

TEST(Tracing, DefersUntilSomebodyNeedsIt) {
    const Tensor a = ops::ones({4, 4});
    Tensor m, s, other, view;
    {
        const TracingScope trace;
        m = ops::matmul(a, a);
        s = ops::add(m, a);
        other = ops::add(a, a);
        view = ops::permute(ops::mul(m, 2), {1, 0});
        EXPECT_EQ(m.status(), Status::Unscheduled);
        EXPECT_EQ(m.shape(), (Shape{4, 4}));
        {
            const EagerScope eager;
            EXPECT_EQ(ops::add(a, a).item_as_vec<float>()[0], 2);
        }
        EXPECT_THROW(ops::nonzero(a), Error);
        EXPECT_FALSE(s.is_ready());
    }
    EXPECT_EQ(s.status(), Status::Unscheduled);
    EXPECT_EQ(ops::sum(s).item<float>(), 80);  // used by an operator outside
    EXPECT_EQ(m.status(), Status::Evaluated);
    EXPECT_EQ(other.status(), Status::Unscheduled);  // not in the lineage of s
    EXPECT_EQ(view.item_as_vec<float>()[7], 8);
    other.start();
    EXPECT_EQ(other.status(), Status::Evaluated);
    EXPECT_EQ(other.item_as_vec<float>()[0], 2);
}

TEST(Tracing, AConflictingWriteSubmitsFirstWhatReadTheOldValue) {
    const std::vector<float> ones(8, 1.0f);
    const Tensor t = Tensor::from_data(ones.data(), {8});
    Tensor before, written, after;
    {
        const TracingScope trace;
        before = ops::mul(t, 10);
        ops::add_(t, 1);  // deferred too
        written = ops::mul(t, 10);
    }
    EXPECT_EQ(t.status(), Status::Unscheduled);
    ops::add_(t, 1);  // submits all of it first
    after = ops::mul(t, 10);
    EXPECT_EQ(before.item_as_vec<float>()[0], 10);
    EXPECT_EQ(written.item_as_vec<float>()[0], 20);
    EXPECT_EQ(after.item_as_vec<float>()[0], 30);
}

TEST(Tracing, WritesToMemoryOfTheHostAreNotDeferred) {
    std::vector<float> memory(8, 1.0f);
    const Tensor t = Tensor::borrow(memory.data(), {8}), same = Tensor::borrow(memory.data(), {8});
    Tensor before;
    {
        const TracingScope trace;
        before = ops::mul(t, 10);
        ops::add_(t, 1);
        ops::add_(t, same);  // overlaps, and keeps nothing alive
    }
    EXPECT_EQ(t.status(), Status::Available);
    EXPECT_EQ(before.item_as_vec<float>()[0], 10);
    t.synchronize();
    EXPECT_EQ(memory[7], 4);
    // Memory that was shown to the host is such memory too.
    const Tensor own = ops::ones({4});
    const auto* const seen = static_cast<const float*>(clikart_tensor_data(own.handle()));
    const Tensor again = Tensor::borrow(const_cast<float*>(seen), {4});
    {
        const TracingScope trace;
        ops::mul_(again, 3);
    }
    EXPECT_EQ(ops::add(own, 1).item_as_vec<float>()[0], 4);  // ordered after what was written through the other
}

TEST(Tracing, WhatNobodyCanReachNeverRuns) {
    clikart_drain();
    const std::int64_t before = clikart_memory_current();
    {
        const TracingScope trace;
        Tensor x = ops::ones({1024, 1024});
        for (int i = 0; i < 300'000; ++i) x = ops::add(x, 1);  // a long chain is released in a loop
        const Tensor self = ops::zeros({16});
        ops::add_(self, self);  // keeps nothing alive through itself
        const Tensor twice = ops::mul(self, 2);
        ops::add_(self, twice);  // nor through what was computed from it
    }
    EXPECT_EQ(clikart_memory_current(), before);
}

TEST(Tracing, ACallOutlivesWhatItWouldHaveWritten) {
    const Tensor x = ops::full({64}, 1.0);
    {
        const TracingScope trace;
        const Tensor dropped = ops::add(x, 1);  // must come before the next, which keeps it
        ops::add_(x, 1);
    }
    EXPECT_EQ(x.item_as_vec<float>()[0], 2);
}

TEST(Tracing, ManyThreadsMayStartTheSame) {
    for (int round = 0; round < 50; ++round) {
        const Tensor a = ops::ones({32, 32});
        std::vector<Tensor> ends;
        {
            const TracingScope trace;
            Tensor x = a;
            for (int i = 0; i < 100; ++i) x = ops::add(x, 1);
            for (int i = 0; i < 4; ++i) ends.push_back(ops::mul(x, i));
        }
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i)
            threads.emplace_back([&, i] { EXPECT_EQ(ops::amax(ends[static_cast<size_t>(i)]).item<float>(), 101.0f * static_cast<float>(i)); });
        for (auto& thread : threads) thread.join();
    }
}

TEST(Synchronous, OfTheThreadAndRaii) {
    const Stream worker = Stream::create(Device::cpu());
    try {
        const SynchronousStreamScope scope(worker);
        EXPECT_TRUE(heavy().is_ready());
        EXPECT_THROW(ops::full({std::int64_t{1} << 50}, 1.0), MemoryError);
        throw 1;
    } catch (int) {
    }
    EXPECT_FALSE(heavy().is_ready());
}

// ---- borrowed memory and writing in place ----------------------------------------------------------------------------

TEST(Borrow, IsSeenThroughAndGivenBackOnce) {
    std::vector<float> memory(6);
    std::iota(memory.begin(), memory.end(), 0.0f);
    std::atomic<int> given_back{0};
    std::promise<void> back;
    {
        Tensor t = Tensor::borrow(memory.data(), {2, 3}, [&] {
            ++given_back;
            back.set_value();
        });
        EXPECT_EQ(t.status(), Status::Available);
        memory[5] = 50;
        EXPECT_EQ(ops::sum(t).item<float>(), 60);
        const Tensor slow = ops::mul(ops::slice(ops::reshape(heavy(), {-1}), 0, 0, 3), 1024);  // ones, later
        ops::add_(t, slow);
        t = Tensor();  // the work keeps the memory
        EXPECT_EQ(given_back, 0);
    }
    back.get_future().get();
    EXPECT_EQ(given_back, 1);
    EXPECT_EQ(memory, (std::vector<float>{1, 2, 3, 4, 5, 51}));
    const std::vector<float> constant(3, 1);
    EXPECT_THROW(ops::add_(Tensor::borrow(constant.data(), {3}), 1), ValueError);
}

TEST(Borrow, OverlappingMemoriesKeepTheirOrder) {
    for (int round = 0; round < 20; ++round) {
        std::vector<float> memory(3000, 1.0f);
        const Tensor slow = ops::mul(heavy(), 1024);
        const Stream other = Stream::create(Device::cpu());
        const Tensor left = Tensor::borrow(memory.data(), {2000}), right = Tensor::borrow(memory.data() + 1000, {2000});
        ops::add_(left, ops::select(ops::select(slow, 0, 0), 0, 0));  // late: 2 in the first 2000
        Tensor middle;
        {
            const StreamScope scope(other);
            middle = Tensor::borrow(memory.data() + 500, {1000});  // overlaps both, while the write is pending
            ops::mul_(right, 3);                                   // after the first
        }
        EXPECT_EQ(ops::sum(middle).item<float>(), 500 * 2 + 500 * 6);
        clikart_drain();
        EXPECT_EQ(memory[0], 2);
        EXPECT_EQ(memory[1500], 6);
        EXPECT_EQ(memory[2999], 3);
    }
}

TEST(InPlace, ShapesDtypesAndOverlap) {
    const Tensor x = ops::arange(0, 6, 1, DataType::Float32);
    ops::add_(ops::slice(x, 0, 1), ops::slice(x, 0, 0, 5));  // as if the operand had been copied first
    EXPECT_EQ(x.item_as_vec<float>(), (std::vector<float>{0, 1, 3, 5, 7, 9}));
    ops::mul_(ops::slice(x, 0, std::nullopt, std::nullopt, -2), 10);
    EXPECT_EQ(x.item_as_vec<float>(), (std::vector<float>{0, 10, 3, 50, 7, 90}));
    ops::copy_(ops::slice(x, 0, 0, 2), 7);
    ops::copy_(ops::slice(x, 0, 2, 4), Tensor(ops::arange(1, 3)));  // integers, converted
    EXPECT_EQ(x.item_as_vec<float>(), (std::vector<float>{7, 7, 1, 2, 7, 90}));
    ops::add_(x, x);
    EXPECT_EQ(x.item_as_vec<float>()[5], 180);
    EXPECT_THROW(ops::add_(x, ops::ones({2, 6})), ValueError);
    EXPECT_THROW(ops::copy_(x, ops::ones({5})), ValueError);
    EXPECT_THROW(ops::add_(ops::arange(0, 3), 0.5), TypeError);
    EXPECT_NO_THROW(ops::add_(x, Tensor(ops::full({6}, 1.0, DataType::Float64))));  // its kind stays
    EXPECT_EQ(x.dtype(), DataType::Float32);
    EXPECT_EQ(x.item_as_vec<float>()[0], 15);
    Tensor empty = ops::zeros({0, 3});
    EXPECT_NO_THROW(ops::add_(empty, 1));
}

// ---- late failures ---------------------------------------------------------------------------------------------------

TEST(LateFailure, NamesOperatorShapesAndPlace) {
    set_tag("stage 3");
    const Tensor queue = heavy();
    clikart_fail_kernel(CLIKART_OP_TANH, 1);
    const Tensor x = ops::mul(queue, 2);
    const Tensor good = ops::tanh(x), bad = ops::tanh(ops::slice(x, 0, 0, 5)), unrelated = ops::tanh(x), after = ops::add(bad, 1);
    set_tag("");
    const std::string expected = "tanh: failed as it was told to (from float32 [5, 1024] to float32 [5, 1024]); called at stage 3";
    EXPECT_EQ(message_of([&] { after.synchronize(); }), expected);
    EXPECT_EQ(message_of([&] { bad.item_as_vec<float>(); }), expected);
    EXPECT_EQ(message_of([&] { bad.item_as_vec<float>(); }), expected);
    EXPECT_NEAR(ops::amax(good).item<float>(), std::tanh(2.0f / 1024), 1e-8f);
    EXPECT_NEAR(ops::amax(unrelated).item<float>(), std::tanh(2.0f / 1024), 1e-8f);
    EXPECT_NO_THROW(Stream::current().synchronize());  // somebody was told
}

TEST(LateFailure, SynchronizeTellsTheFirstNobodyWasToldOfOnce) {
    clikart_fail_kernel(CLIKART_OP_EXP, 0);
    const Tensor bad = ops::exp(heavy());
    EXPECT_THROW(Stream::current().synchronize(), Error);
    EXPECT_NO_THROW(Stream::current().synchronize());
    EXPECT_THROW(bad.synchronize(), Error);  // the result stays what it is
}

TEST(LateFailure, APartOfOverlappingMemoryCuresNothing) {
    std::vector<float> memory(8, 1.0f);
    const Tensor all = Tensor::borrow(memory.data(), {8}), part = Tensor::borrow(memory.data(), {4});
    clikart_fail_kernel(CLIKART_OP_ADD, 0);
    ops::add_(all, 1);
    ops::copy_(part, 0);
    EXPECT_THROW(all.synchronize(), Error);
    ops::copy_(all, 0);
    EXPECT_NO_THROW(all.synchronize());
    EXPECT_NO_THROW(part.synchronize());
}

TEST(LateFailure, AWholeOverwriteCures) {
    Tensor x = ops::zeros({4});
    x.synchronize();
    clikart_fail_kernel(CLIKART_OP_ADD, 0);
    ops::add_(x, 1);
    EXPECT_THROW(x.synchronize(), Error);
    ops::copy_(ops::slice(x, 0, 0, 2), 1);  // a part does not
    EXPECT_THROW(x.synchronize(), Error);
    EXPECT_THROW(ops::add(x, 1).synchronize(), Error);
    ops::copy_(x, 3);
    EXPECT_EQ(ops::sum(x).item<float>(), 12);
}
