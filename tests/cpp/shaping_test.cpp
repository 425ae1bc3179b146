// The C++ API over views, joining and creation.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>

using namespace ClikaRT;

namespace {

Tensor counted(const Shape& shape) {
    std::int64_t n = 1;
    for (const auto size : shape) n *= size;
    return ops::reshape(ops::arange(0, n), shape);
}

std::vector<std::int64_t> integers(const Tensor& t) {
    return t.item_as_vec<std::int64_t>();
}

std::vector<Shape> shapes(const std::vector<Tensor>& tensors) {
    std::vector<Shape> list;
    for (const Tensor& t : tensors) list.push_back(t.shape());
    return list;
}

}  // namespace

TEST(Shaping, PartsAreViews) {
    const Tensor x = counted({5, 2});
    EXPECT_EQ(shapes(ops::split(x, 2)), (std::vector<Shape>{{2, 2}, {2, 2}, {1, 2}}));
    EXPECT_EQ(shapes(ops::split(x, Shape{4, 1}, -2)), (std::vector<Shape>{{4, 2}, {1, 2}}));
    EXPECT_EQ(shapes(ops::chunk(x, 4)), (std::vector<Shape>{{2, 2}, {2, 2}, {1, 2}}));
    EXPECT_EQ(shapes(ops::tensor_split(x, 3)), (std::vector<Shape>{{2, 2}, {2, 2}, {1, 2}}));
    EXPECT_EQ(shapes(ops::tensor_split(x, Shape{1, 4})), (std::vector<Shape>{{1, 2}, {3, 2}, {1, 2}}));
    EXPECT_EQ(ops::unbind(x).size(), 5u);
    ops::copy_(ops::unbind(x, 1)[1], -1);
    EXPECT_EQ(integers(x), (std::vector<std::int64_t>{0, -1, 2, -1, 4, -1, 6, -1, 8, -1}));
    EXPECT_THROW(ops::split(x, 0), ValueError);
    EXPECT_THROW(ops::split(x, Shape{1, 1}), ValueError);
    EXPECT_THROW(ops::chunk(x, 0), ValueError);
    EXPECT_THROW(ops::unbind(x, 2), IndexError);
    EXPECT_EQ(ops::chunk(ops::zeros({0, 2}), 3).size(), 3u);
}

TEST(Shaping, Grids) {
    const std::vector<Tensor> lines{counted({2}), counted({3})};
    EXPECT_EQ(integers(ops::meshgrid(lines)[1]), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
    EXPECT_EQ(ops::meshgrid(lines, ops::Indexing::Xy)[0].shape(), (Shape{3, 2}));
    EXPECT_EQ(integers(ops::meshgrid(lines, ops::Indexing::Xy)[0]), (std::vector<std::int64_t>{0, 1, 0, 1, 0, 1}));
    EXPECT_THROW(ops::meshgrid({}), ValueError);
}

TEST(Shaping, MovedElements) {
    const Tensor x = counted({2, 3});
    EXPECT_EQ(integers(ops::stack({x, x}, -1)), (std::vector<std::int64_t>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
    EXPECT_EQ(integers(ops::pad(x, {1, 0}, PadMode::Reflect)), (std::vector<std::int64_t>{1, 0, 1, 2, 4, 3, 4, 5}));
    EXPECT_EQ(integers(ops::flip(x, {1})), (std::vector<std::int64_t>{2, 1, 0, 5, 4, 3}));
    EXPECT_EQ(integers(ops::roll(x, {1})), (std::vector<std::int64_t>{5, 0, 1, 2, 3, 4}));
    EXPECT_EQ(integers(ops::repeat(x, {1, 2})), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
    EXPECT_EQ(integers(ops::clamp(x, 1, 3)), (std::vector<std::int64_t>{1, 1, 2, 3, 3, 3}));
    EXPECT_EQ(integers(ops::clamp(x, std::nullopt, 3)), (std::vector<std::int64_t>{0, 1, 2, 3, 3, 3}));
    EXPECT_THROW(ops::clamp(x), ValueError);
    EXPECT_EQ(integers(ops::cat({x, x}, 1)), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5}));
    EXPECT_EQ(ops::swapaxes(x, 0, -1).shape(), (Shape{3, 2}));
    EXPECT_EQ(integers(ops::aminmax(x, {1}).max), (std::vector<std::int64_t>{2, 5}));
    EXPECT_EQ(integers(ops::aminmax(x).min), (std::vector<std::int64_t>{0}));
}

TEST(Shaping, PaddingsThatKeepTheSize) {
    const Tensor x = ops::ones({1, 5, 1}), weight = ops::ones({1, 2, 1});
    const Tensor same = ops::conv1d(x, weight, std::nullopt, {1}, {same_padding});
    EXPECT_EQ(same.shape(), (Shape{1, 5, 1}));
    EXPECT_EQ(same.item_as_vec<float>(), (std::vector<float>{2, 2, 2, 2, 1}));
    EXPECT_THROW(ops::conv1d(x, weight, std::nullopt, {2}, {same_padding}), ValueError);
}

TEST(Shaping, CreationLikeOthers) {
    const Tensor x = counted({2, 2});
    EXPECT_EQ(integers(ops::ones_like(x)), (std::vector<std::int64_t>(4, 1)));
    EXPECT_EQ(ops::zeros_like(x, DataType::Float32).dtype(), DataType::Float32);
    EXPECT_EQ(integers(ops::full_like(x, 7)), (std::vector<std::int64_t>(4, 7)));
    EXPECT_EQ(ops::empty_like(x).shape(), (Shape{2, 2}));
    EXPECT_EQ(ops::empty({3}).dtype(), DataType::Float32);
    EXPECT_EQ(ops::contiguous(x).handle(), x.handle());
    EXPECT_NE(ops::contiguous(ops::transpose(x, 0, 1)).handle(), x.handle());
    EXPECT_TRUE(ops::allclose(ops::cast(x, DataType::Float32), x));
    EXPECT_FALSE(ops::allclose(x, ops::add(x, 1)));
}
