// Random operators from C++ and C: generators and placement.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>

using namespace ClikaRT;

TEST(Random, ACallDrawsFromTheGeneratorItIsGiven) {
    const Generator generator(7);
    const Tensor first = ops::uniform({100}, 0.0, 1.0, std::nullopt, generator);
    EXPECT_EQ(generator.state().seed, 7u);
    EXPECT_EQ(generator.state().offset, 100u);
    const Tensor second = ops::uniform({100}, 0.0, 1.0, std::nullopt, generator);
    EXPECT_NE(first.item_as_vec<float>(), second.item_as_vec<float>());
    generator.manual_seed(7);
    EXPECT_EQ(first.item_as_vec<float>(), ops::uniform({100}, 0.0, 1.0, std::nullopt, generator).item_as_vec<float>());
    EXPECT_THROW(ops::uniform({2}, 1.0, 0.0), ValueError);
}

TEST(Random, TheProcessHasAGenerator) {
    manual_seed(3);
    const Tensor own = ops::randperm(50), zeros_and_ones = ops::bernoulli(ops::full({8}, 0.5));
    const Generator generator(3);
    EXPECT_EQ(own.item_as_vec<std::int64_t>(), ops::randperm(50, std::nullopt, generator).item_as_vec<std::int64_t>());
    EXPECT_EQ(zeros_and_ones.item_as_vec<float>(), ops::bernoulli(ops::full({8}, 0.5), generator).item_as_vec<float>());
}

TEST(Random, PlacedLikeOtherTensorsFromNothing) {
    EXPECT_EQ(ops::normal({2, 3}, 0.0, 1.0, DataType::Float64, Generator(1), Device("meta")).shape(), (Shape{2, 3}));
    EXPECT_EQ(ops::randint(0, 5, {4}, DataType::UInt8, Generator(1), Device("cpu")).dtype(), DataType::UInt8);
}

TEST(Random, TheCInterface) {
    clikart_generator* const generator = clikart_generator_create(7);
    const std::int64_t shape[] = {100};
    clikart_tensor* const drawn = clikart_uniform(shape, 1, 0.0, 1.0, CLIKART_UNSPECIFIED, generator, nullptr);
    ASSERT_NE(drawn, nullptr);
    std::uint64_t seed = 0, offset = 0;
    EXPECT_EQ(clikart_generator_state(generator, &seed, &offset), 0);
    EXPECT_EQ(seed, 7u);
    EXPECT_EQ(offset, 100u);
    clikart_generator_release(generator);
    const Tensor tensor = Tensor::adopt(drawn);
    EXPECT_EQ(tensor.item_as_vec<float>(), ops::uniform({100}, 0.0, 1.0, std::nullopt, Generator(7)).item_as_vec<float>());
}
