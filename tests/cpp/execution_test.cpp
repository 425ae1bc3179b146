// Streams, order, threads, late failures, memory.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>
#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "heavy.h"

using namespace ClikaRT;

TEST(Execution, DispatchDoesNotWaitAndReadsDo) {
    const Tensor x = heavy();
    EXPECT_FALSE(x.stream().query_idle());
    EXPECT_EQ(clikart_tensor_wait(x.handle(), 0), 0);
    EXPECT_EQ(clikart_tensor_wait(x.handle(), 1000), 0);
    EXPECT_NEAR(ops::amax(x).item<float>(), 1.0f / 1024, 1e-9f);
    EXPECT_EQ(clikart_tensor_wait(heavy().handle(), INT64_MAX), 1);
    x.stream().synchronize();
    EXPECT_TRUE(x.stream().query_idle());
    EXPECT_EQ(x.stream(), Stream::current());
}

TEST(Execution, SmallWorkBehindLargeWorkKeepsItsOrder) {
    Tensor x = ops::mul(heavy(), 1024);
    for (int i = 0; i < 1000; ++i) x = ops::add(x, 1);
    EXPECT_NEAR(ops::amax(x).item<float>(), 1001.0f, 1e-3f);
}

TEST(Execution, StreamsWaitForEachOther) {
    const Stream other = Stream::create(Device::cpu());
    Tensor x;
    std::thread([&] { x = heavy(); }).join();  // rides a lane whose thread is gone
    EXPECT_NE(x.stream(), Stream::current());
    const Tensor placed = ops::full({1024, 1024}, 1.0, DataType::Float32, other);
    EXPECT_EQ(placed.stream(), other);
    EXPECT_NEAR(ops::amax(ops::add(x, placed)).item<float>(), 1.0f + 1.0f / 1024, 1e-6f);
}

TEST(Execution, AStreamBlockedByAnotherRunsWhenItMay) {
    // Many calls queued behind one dependency, on several streams, each of which waits once.
    const Tensor slow = heavy();
    std::vector<Tensor> results;
    for (int s = 0; s < 4; ++s) {
        const Stream stream = Stream::create(Device::cpu());
        Tensor x = ops::full({1024, 1024}, s, DataType::Float32, stream);
        std::thread([&] {
            for (int i = 0; i < 30; ++i) x = ops::add(x, slow);
        }).join();
        results.push_back(x);
    }
    for (int s = 0; s < 4; ++s) EXPECT_NEAR(ops::amax(results[static_cast<std::size_t>(s)]).item<float>(), static_cast<float>(s) + 30.0f / 1024, 1e-4f);
}

TEST(Execution, SynchronousStreamScope) {
    {
        const SynchronousStreamScope scope;
        const Tensor x = heavy();
        EXPECT_TRUE(x.stream().query_idle());
        EXPECT_EQ(clikart_tensor_wait(x.handle(), 0), 1);
        {
            const SynchronousStreamScope inner;
        }
        EXPECT_TRUE(heavy().stream().query_idle());
        std::thread([] { EXPECT_FALSE(heavy().stream().query_idle()); }).join();
    }
    EXPECT_FALSE(heavy().stream().query_idle());
    clikart_drain();
}

TEST(Execution, FailuresBelongToResults) {
    const Tensor bad = ops::full({std::int64_t{1} << 50}, 1.0);
    const Tensor after = ops::exp(bad), unrelated = ops::full({2}, 3.0);
    EXPECT_THROW(bad.synchronize(), MemoryError);
    EXPECT_THROW(after.synchronize(), MemoryError);
    EXPECT_THROW(after.synchronize(), MemoryError);
    EXPECT_EQ(ops::sum(unrelated).item<float>(), 6);
    EXPECT_NO_THROW(Stream::current().synchronize());
    const SynchronousStreamScope scope;
    EXPECT_THROW(ops::full({std::int64_t{1} << 50}, 1.0), MemoryError);
}

TEST(Execution, AChainNeedsAFewBuffersHoweverFarDispatchRuns) {
    const std::int64_t bytes = 1024 * 1024 * 4;
    clikart_drain();
    const Tensor a = ops::full({1024, 1024}, 1.0 / 1024);
    a.synchronize();
    const std::int64_t before = clikart_memory_current();
    Tensor x = a;
    std::int64_t most = 0;
    for (int i = 0; i < 48; ++i) {
        x = ops::matmul(x, a);
        most = std::max(most, clikart_memory_current() - before);
    }
    x.synchronize();
    EXPECT_LE(most, 5 * bytes);  // two results, the packed operand of one product, scratch
    x = Tensor();
    EXPECT_EQ(clikart_memory_current(), before);
}

TEST(Execution, ManyThreads) {
    const Tensor shared = ops::full({64, 64}, 1.0 / 64);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 0; i < 50; ++i) {
                const Tensor x = ops::add(ops::matmul(shared, shared), t);
                const Tensor y = ops::sum(ops::softmax(ops::reshape(x, {-1}), 0));
                right += std::abs(y.item<float>() - 1) < 1e-5f;
            }
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right, 400);
}

TEST(Execution, ManyShortLivedThreads) {
    Tensor sum = ops::full({1}, 0.0);
    for (int i = 0; i < 500; ++i) std::thread([&] { sum = ops::add(sum, 1); }).join();
    EXPECT_EQ(sum.item<float>(), 500);
}

TEST(Execution, HandlesMayGoWhileWorkIsUnderWay) {
    for (int i = 0; i < 20; ++i) {
        Tensor y;
        {
            const Tensor x = heavy();
            y = ops::exp(x);
        }
        if (i % 2) y = Tensor();
    }
    clikart_drain();
}

TEST(Execution, AProcessMayExitWithWorkQueued) {
    // In a child that starts afresh: death tests in this style run the program again.
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_EXIT(
        {
            Tensor x = ops::tanh(heavy());
            for (int i = 0; i < 50; ++i) x = ops::exp(x);
            std::exit(0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            clikart_shutdown();
            bool refused = false;
            try {
                ops::full({2}, 1.0);
            } catch (const Error& error) {
                refused = std::string(error.what()) == "full: the runtime is shutting down, no more work is accepted";
            }
            std::exit(refused ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
    // By threads that the library does not know, and by its own.
    EXPECT_EXIT(
        {
            std::thread([] { static_cast<void>(heavy()); }).join();
            std::exit(0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            const Tensor x = heavy();
            std::thread([] { std::exit(0); }).join();
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EXIT(
        {
            heavy().on_complete([](const Tensor&) { std::exit(0); });
            std::promise<void>().get_future().wait();
        },
        testing::ExitedWithCode(0), "");
    // A callback that never returns is waited for five seconds.
    EXPECT_EXIT(
        {
            heavy().on_complete([](const Tensor&) { std::promise<void>().get_future().wait(); });
            std::exit(0);
        },
        testing::ExitedWithCode(0), "a callback of on_complete is still running");
}
