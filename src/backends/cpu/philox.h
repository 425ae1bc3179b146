// Philox 4x32-10, as Salmon et al. describe it ("Parallel random numbers: as easy as 1, 2, 3", 2011): block i of the sequence
// of a seed is four 32-bit words, a function of both.
#pragma once

#include <array>
#include <cstdint>

namespace clikart::cpu {

using PhiloxBlock = std::array<uint32_t, 4>;

struct Philox {
    static constexpr int kRounds = 10;
    static constexpr uint32_t kFactor0 = 0xD2511F53u, kFactor1 = 0xCD9E8D57u;  // of the counter's words
    static constexpr uint32_t kStep0 = 0x9E3779B9u, kStep1 = 0xBB67AE85u;      // of the key's, from round to round

    static constexpr PhiloxBlock block(PhiloxBlock counter, uint32_t key0, uint32_t key1) noexcept {
        for (int round = 0; round < kRounds; ++round) {
            const uint64_t p0 = uint64_t{kFactor0} * counter[0], p1 = uint64_t{kFactor1} * counter[2];
            counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1,
                       static_cast<uint32_t>(p0)};
            key0 += kStep0;
            key1 += kStep1;
        }
        return counter;
    }
    static constexpr PhiloxBlock block(uint64_t seed, uint64_t i) noexcept {
        return block({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    }
};

// What the authors' own program gives.
static_assert(Philox::block({0, 0, 0, 0}, 0, 0) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(Philox::block({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff) ==
              PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(Philox::block({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
              PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// How elements share the blocks of a call.  Sixteen blocks are a group, whose 64 words lie in the order that vectors of any
// width make them in: word 0 of all blocks, then word 1, 2 and 3.  Element i of a tensor takes
// - where one word is enough: word i % 64 of group i / 64;
// - where it needs 64 bits: words j and j + 16 of group i / 32, the second one above, with j = i % 32 for the first sixteen and
//   j = i % 32 + 16 for the others.
// So n elements need no more than n blocks, which is what the call reserved.
inline constexpr int64_t kGroupBlocks = 16, kGroupWords = 64;

/// The upper 64 of the 128 bits of a product: what of `b` possibilities the random number a stands for.
constexpr uint64_t upper_product(uint64_t a, uint64_t b) noexcept {
    const uint64_t a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;
    const uint64_t middle = a1 * b0 + (a0 * b0 >> 32), other = a0 * b1 + (middle & 0xffffffffu);
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/// Writes the words of `groups` groups from block `first` on.
void random_words(uint64_t seed, uint64_t first, int64_t groups, uint32_t* words);

/// The 64 bits of element i, one by one.
class RandomBits {
public:
    RandomBits(uint64_t seed, uint64_t offset) noexcept : seed_(seed), offset_(offset) {}
    uint64_t operator()(int64_t i) {
        constexpr int64_t kElements = kGroupWords / 2;
        if (i / kElements != group_) {
            group_ = i / kElements;
            random_words(seed_, offset_ + static_cast<uint64_t>(group_ * kGroupBlocks), 1, words_);
        }
        const int64_t e = i % kElements, j = e < kGroupBlocks ? e : e + kGroupBlocks;
        return uint64_t{words_[j + kGroupBlocks]} << 32 | words_[j];
    }

private:
    const uint64_t seed_, offset_;
    int64_t group_ = -1;
    alignas(64) uint32_t words_[kGroupWords];
};

}  // namespace clikart::cpu
