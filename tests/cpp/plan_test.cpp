// How a run's memory is laid out.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "graph/arena.h"

using namespace clikart;

TEST(Arena, PlacesAreAlignedAndDoNotOverlap) {
    std::mt19937 random(1);
    for (int round = 0; round < 20; ++round) {
        Arena arena;
        std::map<int64_t, int64_t> live;  // by offset: bytes
        int64_t in_use = 0, most = 0;
        for (int i = 0; i < 500; ++i) {
            if (live.empty() || random() % 5 < 3) {
                const auto bytes = static_cast<int64_t>(random() % 5000);
                const int64_t at = arena.take(bytes);
                EXPECT_EQ(at % 64, 0);
                EXPECT_LE(at + bytes, arena.size());
                const auto next = live.lower_bound(at);
                EXPECT_TRUE(next == live.end() || at + std::max<int64_t>(bytes, 1) <= next->first);
                EXPECT_TRUE(next == live.begin() || std::prev(next)->first + std::prev(next)->second <= at);
                live.emplace(at, bytes);
                in_use += bytes;
                most = std::max(most, in_use);
            } else {
                const auto it = std::next(live.begin(), static_cast<int64_t>(random() % live.size()));
                arena.give_back(it->first, it->second);
                in_use -= it->second;
                live.erase(it);
            }
        }
        EXPECT_LE(arena.size(), 2 * most + 64 * 500);
    }
}

TEST(Arena, GapsThatMeetBecomeOne) {
    Arena arena;
    const int64_t a = arena.take(100), b = arena.take(100), c = arena.take(100);
    arena.give_back(a, 100);
    arena.give_back(c, 100);
    arena.give_back(b, 100);
    EXPECT_EQ(arena.take(300), 0);
    EXPECT_EQ(arena.size(), 3 * 128);
}
