// I5 of docs/execution.md, and what a thread brings along that computes while it waits.
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <atomic>
#include <bit>
#include <latch>
#include <optional>
#include <thread>

#include "ordering.h"

using namespace clikart;

namespace {

/// Two workers, for as long as it lives.
class TwoThreads {
public:
    TwoThreads() { ThreadPool::instance().set_threads(2); }
    ~TwoThreads() { ThreadPool::instance().set_threads(before_); }

private:
    const int before_ = ThreadPool::instance().threads();
};

}  // namespace

TEST(Waiting, I5_AWaiterHelpsOnlyWithWhatItsTargetNeeds) {
    // All workers are taken, so what a wait without a timeout needs can only run on the waiter.
    ThreadPool& pool = ThreadPool::instance();
    Gate gate;
    std::vector<Ref<Stream>> taken;
    for (int i = 0; i < pool.threads(); ++i) {
        taken.push_back(new_stream());
        submit(taken.back(), {{}, {new_tensor()}}, [&] { gate.pass(); });
    }
    gate.wait_until_reached(pool.threads());
    const auto stream = new_stream(), other = new_stream();
    const auto target = new_tensor();
    std::vector<std::thread::id> ran;
    bool later = false, unrelated = false;
    submit(other, {{}, {new_tensor()}}, [&] { unrelated = true; });
    submit(stream, {{}, {new_tensor()}}, [&] { ran.push_back(std::this_thread::get_id()); });
    submit(stream, {{}, {target}}, [&] { ran.push_back(std::this_thread::get_id()); });
    submit(stream, {{}, {new_tensor()}}, [&] { later = true; });
    settle(*target, "test");
    EXPECT_EQ(ran, std::vector<std::thread::id>(2, std::this_thread::get_id()));
    EXPECT_FALSE(later || unrelated);
    gate.open();
    for (const auto& s : taken) s->synchronize();
    stream->synchronize();
    other->synchronize();
    EXPECT_TRUE(later && unrelated);
}

TEST(Waiting, I5_WaitsWithATimeoutRunWhatFitsAndLoopsTakeOnlyTheirOwn) {
    constexpr int64_t kMillisecond = 1'000'000;
    const auto stream = new_stream();
    Gate gate;
    std::atomic<bool> on_waiter{false};
    const auto me = std::this_thread::get_id();
    const auto note = [&] { on_waiter = std::this_thread::get_id() == me; };
    submit(stream, {{}, {new_tensor()}}, [&] { gate.pass(); });
    submit(stream, {{}, {new_tensor()}}, nothing);
    EXPECT_FALSE(stream->synchronize(kMillisecond));
    gate.open();
    stream->synchronize();
    // With all workers taken, what fits is run by the waiter, and not what comes behind it and does not.
    ThreadPool& pool = ThreadPool::instance();
    Gate all;
    std::vector<Ref<Stream>> taken;
    for (int i = 0; i < pool.threads(); ++i) {
        taken.push_back(new_stream());
        submit(taken.back(), {{}, {new_tensor()}}, [&] { all.pass(); });
    }
    all.wait_until_reached(pool.threads());
    std::atomic<bool> long_ran{false};
    submit(stream, {{}, {new_tensor()}}, note, 20'000);
    submit(stream, {{}, {new_tensor()}}, [&] { long_ran = true; }, 1e12);
    while (!on_waiter) EXPECT_FALSE(stream->synchronize(50 * kMillisecond));
    EXPECT_FALSE(long_ran);
    all.open();
    for (const auto& s : taken) s->synchronize();
    stream->synchronize();
    EXPECT_TRUE(long_ran);
    // A worker that waits for helpers of its loop takes no other stream's work meanwhile: the loops of saturated workers,
    // each with a loop inside, come to an end.
    std::vector<Ref<Stream>> streams;
    std::atomic<int64_t> pieces{0};
    for (int i = 0; i < 8; ++i) {
        streams.push_back(new_stream());
        submit(streams.back(), {{}, {new_tensor()}},
               [&] { ThreadPool::instance().parallel_for(16, [&](int64_t) { ThreadPool::instance().parallel_for(4, [&](int64_t) { ++pieces; }); }); });
    }
    for (const auto& s : streams) s->synchronize();
    EXPECT_EQ(pieces, 8 * 16 * 4);
}

TEST(Waiting, I5_AWaiterTakesPartInTheLoopsOfWhatItWaitsFor) {
    const TwoThreads two;
    ThreadPool& pool = ThreadPool::instance();
    // One worker is taken, the other runs a loop of two pieces, the first of which waits for the second.
    Gate taken;
    const auto elsewhere = new_stream(), stream = new_stream();
    submit(elsewhere, {{}, {new_tensor()}}, [&] { taken.pass(); });
    taken.wait_until_reached();
    Gate first;
    std::thread::id helper;
    submit(stream, {{}, {new_tensor()}}, [&] {
        pool.parallel_for(2, [&](int64_t piece) {
            if (piece == 0) return first.pass();
            helper = std::this_thread::get_id();
            first.open();
        });
    });
    first.wait_until_reached();
    EXPECT_FALSE(elsewhere->synchronize(20'000'000));  // which is not the loop's crew
    EXPECT_FALSE(stream->synchronize(1'000'000));      // too short for a piece
    stream->synchronize();
    EXPECT_EQ(helper, std::this_thread::get_id());
    taken.open();
    elsewhere->synchronize();
}

TEST(Waiting, I5_RoomIsKeptForAWaiterAndGivenBack) {
    const TwoThreads two;
    ThreadPool& pool = ThreadPool::instance();
    Crew crew;
    const auto stream = new_stream();
    const Deadline forever(-1);
    const auto me = std::this_thread::get_id();
    // A loop of two pieces that meet, by a thread that serves the crew; who takes the second?
    const auto loop = [&](Gate& first, std::thread::id& helper) {
        return std::thread([&] {
            const ThreadPool::Serving serving(crew);
            pool.parallel_for(2, [&](int64_t piece) {
                if (piece == 0) return first.pass();
                helper = std::this_thread::get_id();
                first.open();
            });
        });
    };
    std::thread::id helper;
    {
        Gate first;
        ThreadPool::Waiter waiter(crew, *stream, 1, forever);
        std::thread owner = loop(first, helper);
        first.wait_until_reached();
        while (!waiter.take_part()) {
        }
        owner.join();
        EXPECT_EQ(helper, me);
    }
    for (const bool leaves : {true, false}) {  // a worker, once the room is given up, or the waiter is gone
        Gate first;
        std::optional<ThreadPool::Waiter> waiter(std::in_place, crew, *stream, 1, forever);
        std::thread owner = loop(first, helper);
        first.wait_until_reached();
        leaves ? waiter.reset() : waiter->give_up_room();
        owner.join();
        EXPECT_NE(helper, me);
    }
    {  // what it waited for is over: the loop is none of its business
        Gate first;
        ThreadPool::Waiter waiter(crew, *stream, 0, forever);
        std::thread owner = loop(first, helper);
        first.wait_until_reached();
        EXPECT_FALSE(waiter.take_part());
        waiter.give_up_room();
        owner.join();
    }
    {  // its time is over after the first piece
        std::atomic<int> mine{0};
        const Deadline over(0);
        Gate first;
        std::optional<ThreadPool::Waiter> waiter(std::in_place, crew, *stream, 1, over);
        std::thread owner([&] {
            const ThreadPool::Serving serving(crew);
            pool.parallel_for(8, [&](int64_t piece) {
                if (piece == 0) first.pass();
                mine += std::this_thread::get_id() == me;
            });
        });
        first.wait_until_reached();
        EXPECT_TRUE(waiter->take_part());
        EXPECT_EQ(mine, 0);
        waiter.reset();
        first.open();
        owner.join();
    }
}

TEST(Waiting, I5_AWaitPutsNothingBehindOthers) {
    // A wait that is too short for what comes next leaves its stream where it stands in the queue.
    const TwoThreads two;
    Gate gate, other;
    const auto first = new_stream(), second = new_stream(), stream = new_stream(), last = new_stream();
    submit(first, {{}, {new_tensor()}}, [&] { gate.pass(); });
    submit(second, {{}, {new_tensor()}}, [&] { other.pass(); });
    gate.wait_until_reached();
    other.wait_until_reached();
    std::vector<int> order;
    std::latch both(2);
    const auto note = [&](int number) {
        order.push_back(number);
        both.count_down();
    };
    submit(stream, {{}, {new_tensor()}}, [&] { note(1); });
    submit(last, {{}, {new_tensor()}}, [&] { note(2); });
    EXPECT_FALSE(stream->synchronize(1'000'000));
    gate.open();  // of one worker
    both.wait();
    other.open();
    for (const auto& s : {first, second, stream, last}) s->synchronize();
    EXPECT_EQ(order, (std::vector<int>{1, 2}));
}

#if defined(__x86_64__)
TEST(Waiting, I12_TheFloatModeOfAThreadChangesNoBits) {
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040);  // denormals are zero, as libraries leave it that are built for fast mathematics
    const auto stream = new_stream();
    const volatile float denormal = 1e-40f;
    for (const bool at_once : {true, false}) {
        float sum = 0;
        submit(stream, {{}, {new_tensor()}}, [&] { sum = denormal + denormal; }, at_once ? 1 : kLong, at_once);
        stream->synchronize();
        EXPECT_NE(std::bit_cast<uint32_t>(sum), 0u);  // a comparison would have this mode
    }
    // Numbers are converted on the calling thread.
    const auto weak = scalar(0.7);
    _mm_setcsr(before);
    const auto expected = *static_cast<const float*>(scalar_as(*weak, DType::Float32)->data());
    _mm_setcsr(before | 0x4000);  // rounds up
    EXPECT_EQ(*static_cast<const float*>(scalar_as(*weak, DType::Float32)->data()), expected);
    _mm_setcsr(before | 0x8040);
    EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u);
    _mm_setcsr(before);
}
#endif
