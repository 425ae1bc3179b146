// The memory and ordering model, below the public API: each test carries the number it has in docs/execution.md.
// Gates, not sleeps: work that waits until the test lets it go on.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "core/memory.h"
#include "exec/host_read.h"
#include "exec/schedule.h"
#include "exec/shutdown.h"
#include "ops/call.h"
#include "ops/kernel.h"
#include "ops/settings.h"
#include "ordering.h"

using namespace clikart;

TEST(Ordering, I1_HazardsBelongToTheStorageNotToTheTensor) {
    const auto writer = new_stream(), reader = new_stream();
    const auto t = new_tensor();
    const auto view = make_view(*t, t->dtype(), Dims{4}, Dims{2}, 3);
    EXPECT_EQ(&t->storage(), &view->storage());
    Gate gate;
    std::atomic<bool> written{false};
    submit(writer, {{}, {t}}, [&] {
        gate.pass();
        written = true;
    });
    std::atomic<bool> in_order{false};
    submit(reader, {{view}, {new_tensor()}}, [&] { in_order = written.load(); });
    gate.open();
    reader->synchronize();
    EXPECT_TRUE(in_order);
}

TEST(Ordering, I2_DependenciesPointOnlyToEarlierSubmissions) {
    // Two streams that read what the other writes, over and over, from two threads: a cycle of waits would hang.
    const auto a = new_tensor(), b = new_tensor();
    const Ref<Stream> streams[] = {new_stream(), new_stream()};
    std::vector<std::thread> threads;
    std::atomic<int> ran{0};
    for (int k = 0; k < 2; ++k) {
        threads.emplace_back([&, k] {
            for (int i = 0; i < 2000; ++i) submit(streams[k], {{k ? a : b}, {k ? b : a}, true}, [&] { ++ran; });
        });
    }
    for (auto& thread : threads) thread.join();
    for (const auto& stream : streams) stream->synchronize();
    EXPECT_EQ(ran, 4000);
}

TEST(Ordering, I3_TicketOrderAndTheCounterOnEveryOutcome) {
    const auto stream = new_stream();
    Gate gate;
    std::vector<int> order;
    submit(stream, {{}, {new_tensor()}}, [&] { gate.pass(); });
    for (int i = 0; i < 50; ++i) {
        submit(stream, {{}, {new_tensor()}}, [&, i] {
            order.push_back(i);  // one at a time: no lock needed, and the sanitizer agrees
            if (i % 3 == 0) fail(ErrorKind::Value, "on command");
        });
    }
    EXPECT_FALSE(stream->idle());
    EXPECT_EQ(stream->completed(), 0u);
    gate.open();
    EXPECT_THROW(stream->synchronize(), Failure);
    EXPECT_TRUE(stream->idle());
    EXPECT_EQ(stream->completed(), 51u);
    for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
    // Cancelled work counts too.
    Gate second;
    submit(stream, {{}, {new_tensor()}}, [&] { second.pass(); });
    const auto cancelled = new_tensor();
    bool ran = false;
    submit(stream, {{}, {cancelled}}, [&] { ran = true; });
    second.wait_until_reached();
    cancel_queued();
    second.open();
    EXPECT_THROW(stream->synchronize(), Failure);
    EXPECT_EQ(stream->completed(), 53u);
    EXPECT_FALSE(ran);
    EXPECT_TRUE(raises(*cancelled));
}

TEST(Ordering, I4_TheCallerRunsOnlyWithAnIdleStreamAndSettledHazards) {
    const auto stream = new_stream(), other = new_stream();
    const auto t = new_tensor();
    std::thread::id where;
    const auto tiny = [&](const Operands& operands) { return submit(stream, operands, [&] { where = std::this_thread::get_id(); }, 1); };
    EXPECT_FALSE(tiny({{}, {new_tensor()}}));
    EXPECT_EQ(where, std::this_thread::get_id());
    Gate reading;
    submit(other, {{}, {t}}, nothing);
    submit(other, {{t}, {new_tensor()}}, [&] { reading.pass(); });
    reading.wait_until_reached();
    EXPECT_FALSE(tiny({{t}, {new_tensor()}}));  // a read beside a read
    EXPECT_TRUE(tiny({{}, {t}, true}));         // a write behind an open read is queued
    EXPECT_TRUE(tiny({{}, {new_tensor()}}));    // and what comes after it on the stream
    reading.open();
    stream->synchronize();
    EXPECT_NE(where, std::this_thread::get_id());
    // A failure on the caller is stored like a late one.
    const auto bad = new_tensor();
    EXPECT_NO_THROW(submit(stream, {{}, {bad}}, [] { fail(ErrorKind::Value, "on command"); }, 1));
    EXPECT_TRUE(raises(*bad));
}

TEST(Ordering, I6_PendingWorkOwnsItsStoragesAndLimitsCountUnfinishedWork) {
    const int64_t before = memory_use().current;
    auto stream = new_stream();
    Gate gate;
    {
        auto t = new_tensor();
        t->storage().materialize();
        submit(stream, {{t}, {new_tensor()}}, [&] { gate.pass(); });
    }
    gate.wait_until_reached();
    EXPECT_GE(memory_use().current, before + 64);
    Stream* const raw = stream.get();
    Ref<Stream> waiting = stream;
    stream = nullptr;  // the work keeps the stream too
    gate.open();
    waiting->synchronize();
    EXPECT_TRUE(raw->idle());
    EXPECT_EQ(memory_use().current, before);
    // A caller is held up a while at the limit, never for good, and workers and callbacks are not.
    Gate second;
    submit(waiting, {{}, {new_tensor()}}, [&] { second.pass(); });
    for (int i = 0; i < 258; ++i) submit(waiting, {{}, {new_tensor()}}, nothing);  // the last two wait 50 ms each
    second.open();
    waiting->synchronize();
}

TEST(Ordering, I7_HostReadsHoldOffWriters) {
    const auto t = new_tensor();
    const auto stream = new_stream();
    submit(stream, {{}, {t}}, nothing, 1, true);
    std::atomic<bool> written{false};
    {
        Storage* const storages[] = {&t->storage()};
        const HostRead reading(storages);
        EXPECT_TRUE(submit(stream, {{}, {t}, true}, [&] { written = true; }, 1));  // tiny, and queued all the same
        EXPECT_FALSE(stream->synchronize(1'000'000));
        EXPECT_FALSE(written);
    }
    stream->synchronize();
    EXPECT_TRUE(written);
    // What spoiled the value is raised instead of read.
    submit(stream, {{}, {t}, true}, [] { fail(ErrorKind::Value, "on command"); });
    Storage* const storages[] = {&t->storage()};
    EXPECT_THROW(HostRead reading(storages), Failure);
}

TEST(Ordering, I8_ADeferredCallIsSubmittedOnceAndBeforeAConflict) {
    const auto source = scalar(1.0);
    const auto t = scalar_as(*source, DType::Float32);
    Tensor* const one[] = {t.get(), t.get()};
    set_thread_mode(Mode::Tracing);
    const auto sum = call(OpCode::Add, one, Attributes{});
    set_thread_mode(Mode::Eager);
    EXPECT_EQ(status_of(*sum), Status::Unscheduled);
    std::vector<std::thread> threads;
    fail_kernel(OpCode::Add, 1);  // a second run of the call would fail
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { settle(*sum, "test"); });
    for (auto& thread : threads) thread.join();
    fail_kernel(OpCode::Add, -1);
    EXPECT_EQ(*static_cast<const float*>(sum->data()), 2);
}

TEST(Ordering, I9_AFailurePoisonsWhatDependsOnItWithOneError) {
    const auto stream = new_stream(), other = new_stream();
    const auto bad = new_tensor(), after = new_tensor(), unrelated = new_tensor();
    bool ran = false;
    submit(stream, {{}, {bad}}, [] { fail(ErrorKind::Index, "on command"); });
    submit(other, {{bad}, {after}}, [&] { ran = true; });
    submit(other, {{}, {unrelated}}, nothing);
    EXPECT_TRUE(raises(*after) && raises(*bad) && raises(*bad));
    EXPECT_FALSE(ran || raises(*unrelated));
    Stream::State first, second;
    Stream::look_at(bad->storage(), first);
    Stream::look_at(after->storage(), second);
    EXPECT_EQ(first.error, second.error);
    EXPECT_EQ(first.error->kind(), ErrorKind::Index);
    EXPECT_EQ(first.error->message(), "test: on command (from  to float32 [16])");
    EXPECT_NO_THROW(stream->synchronize());  // it was told
    submit(stream, {{}, {bad}, true}, nothing);
    EXPECT_FALSE(raises(*bad));  // overwritten as a whole
    EXPECT_TRUE(raises(*after));
}

TEST(Ordering, I10_UserCodeRunsWithNoLockHeld) {
    // A log hook and a lender's function that use the runtime would hang under any lock of it.
    std::atomic<int> heard{0};
    const auto stream = new_stream();
    class CountingHook final : public LogHook {
    public:
        explicit CountingHook(std::atomic<int>& heard) : heard_(heard) {}
        void call(LogLevel, const char*) const override {
            ++heard_;
            submit(Stream::lane(), {{}, {new_tensor()}}, nothing, 1);
        }

    private:
        std::atomic<int>& heard_;
    };
    set_log_hook(std::make_shared<const CountingHook>(heard));
    submit(stream, {{}, {new_tensor()}}, [] { fail(ErrorKind::Value, "late"); });
    submit(stream, {{}, {new_tensor()}}, [] { fail(ErrorKind::Value, "at once"); }, 1, true);
    EXPECT_THROW(stream->synchronize(), Failure);
    drain_streams();
    set_log_hook(nullptr);
    EXPECT_EQ(heard, 2);
    std::latch given_back(1);
    alignas(64) static float memory[16];
    {
        const Lender lender{[](void* latch) {
                                submit(Stream::lane(), {{}, {new_tensor()}}, nothing, 1);
                                static_cast<std::latch*>(latch)->count_down();
                            },
                            &given_back};
        const auto t = make_ref<Tensor>(DType::Float32, Dims{16}, Dims{1}, 0, Storage::borrow(memory, sizeof memory, Device{}, true));
        t->storage().set_lender(lender);
        submit(stream, {{t}, {new_tensor()}}, nothing);  // the worker drops the last reference
    }
    given_back.wait();
}

TEST(Ordering, I12_TheGateClosesAndOpens) {
    Gate gate;
    const auto stream = new_stream();
    submit(stream, {{}, {new_tensor()}}, [&] { gate.pass(); });
    EXPECT_FALSE(finish_work(1'000'000));  // not over: the gate stays closed
    EXPECT_THROW(submit(stream, {{}, {new_tensor()}}, nothing), Failure);
    gate.open();
    EXPECT_TRUE(finish_work());
    EXPECT_NO_THROW(submit(stream, {{}, {new_tensor()}}, nothing));
    stream->synchronize();
}

TEST(Ordering, MemoryIsTakenAtTheStart) {
    const int64_t before = memory_use().current;
    const auto stream = new_stream();
    Gate gate;
    submit(stream, {{}, {new_tensor()}}, [&] { gate.pass(); });
    gate.wait_until_reached();
    std::vector<Ref<Tensor>> results;
    for (int i = 0; i < 100; ++i) {
        results.push_back(make_tensor(DType::Float32, Dims{1 << 20}, Device{}));
        submit(stream, {{}, {results.back()}}, nothing);
    }
    EXPECT_LE(memory_use().current, before + 64);
    results.clear();
    gate.open();
    stream->synchronize();
    EXPECT_EQ(memory_use().current, before);
}

TEST(Ordering, ALimitFailsTypedAndIsUsableAfter) {
    const int64_t before = memory_use().current;
    trim_memory();
    reset_memory_peak();
    set_memory_limit(before + (int64_t{8} << 20));
    const auto stream = new_stream();
    const auto big = make_tensor(DType::Float32, Dims{4 << 20}, Device{}), small = make_tensor(DType::Float32, Dims{1 << 20}, Device{});
    submit(stream, {{}, {big}}, nothing);
    submit(stream, {{}, {small}}, nothing);
    try {
        settle(*big, "test");
        ADD_FAILURE();
    } catch (const Failure& failure) {
        EXPECT_EQ(failure.error()->kind(), ErrorKind::Memory);
    }
    EXPECT_FALSE(raises(*small));
    EXPECT_LE(memory_use().peak, before + (int64_t{8} << 20));
    set_memory_limit(INT64_MAX);
}

TEST(Ordering, CallsSideBySideDoNotFailForMemoryThatOneAloneFinds) {
    trim_memory();
    constexpr int64_t kBlock = int64_t{16} << 20;
    set_memory_limit(memory_use().current + kBlock + kBlock / 2);  // room for one, not for two
    Gate gate;
    const auto first = new_stream(), second = new_stream();
    const auto one = make_tensor(DType::Float32, Dims{kBlock / 4}, Device{});
    auto held = make_tensor(DType::Float32, Dims{kBlock / 4}, Device{});
    submit(first, {{}, {std::exchange(held, nullptr)}}, [&] { gate.pass(); });  // has its memory while it runs
    gate.wait_until_reached();
    submit(second, {{}, {one}}, nothing);
    for (bool starved = false; !starved; std::this_thread::yield()) {
        const std::lock_guard lock(submission());
        starved = Schedule::instance().starved == 1;
    }
    gate.open();
    second->synchronize();
    EXPECT_FALSE(raises(*one));
    // When both wait, one fails and the other goes on.
    const auto big = [] { return make_tensor(DType::Float32, Dims{kBlock / 4 * 3}, Device{}); };
    const auto never = big();
    submit(first, {{}, {never}}, nothing);
    EXPECT_TRUE(raises(*never));
    set_memory_limit(INT64_MAX);
}
