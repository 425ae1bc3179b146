// Parts below the public API: dims, memory, the thread pool, attributes, node release.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "backends/cpu/onednn_convolution.h"
#include "base/small_vector.h"
#include "core/dims.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "exec/thread_pool.h"

using namespace clikart;

TEST(Dims, ReshapeStrides) {
    Dims out;
    EXPECT_TRUE(reshape_strides({2, 3, 4}, {12, 4, 1}, {6, 4}, out));
    EXPECT_EQ(out, (Dims{4, 1}));
    EXPECT_TRUE(reshape_strides({2, 3, 4}, {1, 8, 2}, {2, 12}, out));  // the last two axes are dense among themselves
    EXPECT_EQ(out, (Dims{1, 2}));
    EXPECT_FALSE(reshape_strides({2, 3}, {1, 2}, {6}, out));
    EXPECT_TRUE(reshape_strides({6}, {-2}, {2, 3}, out));
    EXPECT_EQ(out, (Dims{-6, -2}));
    EXPECT_TRUE(reshape_strides({1, 5, 1}, {7, 3, 9}, {5, 1, 1}, out));
    EXPECT_EQ(out[0], 3);
    EXPECT_TRUE(reshape_strides({}, {}, {1, 1}, out));
    EXPECT_TRUE(reshape_strides({0, 3}, {3, 1}, {3, 0}, out));
}

TEST(Dims, CheckedNumel) {
    EXPECT_EQ(checked_numel({2, 3}, "t"), 6);
    EXPECT_EQ(checked_numel({}, "t"), 1);
    EXPECT_EQ(checked_numel({INT64_MAX, INT64_MAX, 0}, "t"), 0);
    EXPECT_THROW(checked_numel({INT64_MAX, 2}, "t"), Failure);
    EXPECT_THROW(checked_numel({0, -1}, "t"), Failure);
    EXPECT_THROW(Dims(std::vector<int64_t>(kMaxRank + 1, 1)), Failure);
}

TEST(Memory, BlocksAreAlignedReusedAndCounted) {
    const int64_t before = memory_use().current;
    for (const size_t bytes : {size_t{1}, size_t{64}, size_t{65}, size_t{1000}, size_t{70'000}, size_t{1} << 20, (size_t{5} << 20) + 3}) {
        void* block = allocate(bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kMemoryAlignment, 0u);
        std::memset(block, 1, bytes);
        EXPECT_EQ(memory_use().current, before + static_cast<int64_t>(bytes));
        deallocate(block, bytes);
        void* again = allocate(bytes);
        EXPECT_EQ(again, block) << bytes;
        deallocate(again, bytes);
    }
    EXPECT_EQ(memory_use().current, before);
    EXPECT_GT(memory_use().cached, 0);
    trim_memory();
    EXPECT_EQ(memory_use().cached, 0);
    EXPECT_THROW(allocate(size_t{1} << 52), Failure);
    EXPECT_EQ(memory_use().current, before);
}

TEST(Memory, BlocksCrossThreads) {
    std::vector<void*> blocks(1000);
    std::thread([&] {
        for (auto& block : blocks) block = allocate(256);
    }).join();
    std::thread([&] {
        for (void* block : blocks) deallocate(block, 256);
    }).join();
    trim_memory();
}

TEST(ThreadPool, EveryPieceRunsOnceAlsoNested) {
    ThreadPool& pool = ThreadPool::instance();
    std::vector<std::atomic<int>> counts(1000);
    pool.parallel_for(10, [&](int64_t i) { pool.parallel_for(100, [&](int64_t j) { counts[static_cast<size_t>(i * 100 + j)]++; }); });
    for (const auto& count : counts) EXPECT_EQ(count, 1);
}

TEST(ThreadPool, AnExceptionOfAPieceComesBack) {
    ThreadPool& pool = ThreadPool::instance();
    for (int round = 0; round < 50; ++round) {
        EXPECT_THROW(pool.parallel_for(20,
                                       [](int64_t i) {
                                           if (i % 7 == 3) throw std::runtime_error("piece");
                                       }),
                     std::runtime_error);
    }
}

TEST(ThreadPool, LoopsFromManyThreads) {
    std::vector<std::thread> threads;
    std::atomic<int64_t> sum{0};
    for (int t = 0; t < 6; ++t) {
        threads.emplace_back([&] {
            for (int round = 0; round < 100; ++round) ThreadPool::instance().parallel_for(50, [&](int64_t i) { sum += i; });
        });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(sum, 6 * 100 * 1225);
}

TEST(SmallVector, GrowsPastItsInlinePartAndReleases) {
    const auto object = std::make_shared<int>(1);
    {
        SmallVector<std::shared_ptr<int>, 2> list;
        for (int i = 0; i < 9; ++i) list.push_back(object);
        list.remove_unordered(0);
        EXPECT_EQ(list.size(), 8u);
        EXPECT_EQ(object.use_count(), 9);
    }
    EXPECT_EQ(object.use_count(), 1);
}

TEST(Promotion, IsTorchs) {
    EXPECT_EQ(promote(DType::UInt8, DType::Int8), DType::Int16);
    EXPECT_EQ(promote(DType::UInt8, DType::Int64), DType::Int64);
    EXPECT_EQ(promote(DType::Float16, DType::BFloat16), DType::Float32);
    EXPECT_EQ(promote(DType::Bool, DType::Int8), DType::Int8);
    EXPECT_EQ(promote(DType::Int64, DType::Float16), DType::Float16);
    EXPECT_EQ(promote(DType::UInt16, DType::Int32), DType::Unspecified);
}

TEST(Convolution, OneDnnChoosesACompiledKernel) {
    using cpu::Convolution, cpu::ConvolutionShape;
    const ConvolutionShape shape{1, 1, 64, 64, {1, 16, 56}, {1, 3, 3}, {1, 14, 56}, {1, 1, 1}, {1, 1, 1}, {0, 0, 1}, {0, 0, 1}, 0, 1};
    const auto kernel = Convolution::find(shape);
    ASSERT_TRUE(kernel);
    const std::string name = kernel->implementation();
    EXPECT_TRUE(name.starts_with("jit") || name.starts_with("brg")) << name;
    EXPECT_EQ(kernel, Convolution::find(shape));  // made once
}
