// The C++ API over the operators: values, promotion, broadcasting, views, errors.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>
#include <array>
#include <cmath>
#include <limits>

using namespace ClikaRT;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor numbers(const Shape& shape) {
    std::int64_t n = 1;
    for (const auto size : shape) n *= size;
    return ops::reshape(ops::arange(0, n, 1, DataType::Float32), shape);
}

std::vector<float> floats(const Tensor& t) {
    return t.item_as_vec<float>();
}

}  // namespace

TEST(Operators, ArithmeticWithBroadcastAndNumbers) {
    const Tensor a = numbers({2, 3}), row = numbers({3});
    EXPECT_EQ(floats(ops::add(a, row)), (std::vector<float>{0, 2, 4, 3, 5, 7}));
    EXPECT_EQ(floats(ops::sub(a, 1)), (std::vector<float>{-1, 0, 1, 2, 3, 4}));
    EXPECT_EQ(floats(ops::mul(2, a)), (std::vector<float>{0, 2, 4, 6, 8, 10}));
    EXPECT_EQ(floats(ops::div(a, ops::reshape(ops::add(numbers({2}), 1), {2, 1}))), (std::vector<float>{0, 1, 2, 1.5, 2, 2.5}));
}

TEST(Operators, PromotionIsTorchs) {
    const Tensor i = ops::arange(0, 3, 1);
    EXPECT_EQ(i.dtype(), DataType::Int64);
    EXPECT_EQ(ops::add(i, 1).dtype(), DataType::Int64);
    EXPECT_EQ(ops::add(i, 1.5).dtype(), DataType::Float32);  // a number's category only
    EXPECT_EQ(ops::add(ops::cast(i, DataType::Int32), i).dtype(), DataType::Int64);
    EXPECT_EQ(ops::add(numbers({2}), ops::full({}, 1.0, DataType::Float64)).dtype(), DataType::Float32);  // 0-d gives way
    EXPECT_EQ(ops::add(numbers({2}), ops::full({1}, 1.0, DataType::Float64)).dtype(), DataType::Float64);
    EXPECT_EQ(ops::div(i, i).dtype(), DataType::Float32);
    EXPECT_EQ(ops::sum(ops::cast(i, DataType::Bool)).dtype(), DataType::Int64);
    EXPECT_EQ(ops::argmax(i).dtype(), DataType::Int64);
}

TEST(Operators, NaNGoesThrough) {
    const float values[] = {1, kNaN, -2};
    const Tensor x = Tensor::from_data(values, {3});
    EXPECT_TRUE(std::isnan(floats(ops::relu(x))[1]));
    EXPECT_TRUE(std::isnan(floats(ops::maximum(x, 5))[1]));
    EXPECT_TRUE(std::isnan(floats(ops::maximum(5, x))[1]));
    EXPECT_TRUE(std::isnan(ops::amax(x).item<float>()));
    EXPECT_EQ(ops::argmax(x).item<std::int64_t>(), 1);
    EXPECT_TRUE(std::isnan(floats(ops::exp(x))[1]));
    EXPECT_TRUE(std::isnan(floats(ops::tanh(x))[1]));
    EXPECT_TRUE(std::isnan(floats(ops::softmax(x))[0]));
}

TEST(Operators, EdgesOfExpAndTanh) {
    const float inf = std::numeric_limits<float>::infinity();
    const float values[] = {-inf, inf, 89, -104, 0, -0.0f, 1e-40f};
    const Tensor x = Tensor::from_data(values, {7});
    EXPECT_EQ(floats(ops::exp(x)), (std::vector<float>{0, inf, inf, 0, 1, 1, 1}));
    const auto t = floats(ops::tanh(x));
    EXPECT_EQ(t, (std::vector<float>{-1, 1, 1, -1, 0, -0.0f, 1e-40f}));
    EXPECT_TRUE(std::signbit(t[5]));
    const float low[] = {-100, -90};  // denormal results
    const auto e = floats(ops::exp(Tensor::from_data(low, {2})));
    EXPECT_EQ(e[0], std::exp(-100.0f));
    EXPECT_EQ(e[1], std::exp(-90.0f));
}

TEST(Operators, ViewsShareAndReshapeCopiesWhereItMust) {
    const Tensor x = numbers({2, 3});
    const Tensor t = x.permute({1, 0});
    EXPECT_EQ(t.shape(), (Shape{3, 2}));
    EXPECT_EQ(floats(t), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(clikart_tensor_data(t.handle()), clikart_tensor_data(x.handle()));
    EXPECT_EQ(floats(t.reshape({-1})), (std::vector<float>{0, 3, 1, 4, 2, 5}));
    EXPECT_EQ(clikart_tensor_data(x.reshape({6}).handle()), clikart_tensor_data(x.handle()));
    EXPECT_EQ(floats(ops::slice(x, 1, std::nullopt, std::nullopt, -1)), (std::vector<float>{2, 1, 0, 5, 4, 3}));
    EXPECT_EQ(floats(ops::slice(x, 1, 0, 3, 2)), (std::vector<float>{0, 2, 3, 5}));
    EXPECT_EQ(floats(ops::select(x, 0, -1)), (std::vector<float>{3, 4, 5}));
    EXPECT_EQ(floats(ops::exp(ops::slice(x, 1, 1, 1))), std::vector<float>{});
}

TEST(Operators, Reductions) {
    const Tensor x = numbers({2, 3, 4});
    EXPECT_EQ(ops::sum(x).item<float>(), 276);
    EXPECT_EQ(floats(ops::sum(x, Shape{0, 2})), (std::vector<float>{60, 92, 124}));
    EXPECT_EQ(ops::mean(x, Shape{1}, true).shape(), (Shape{2, 1, 4}));
    EXPECT_EQ(floats(ops::amax(x, Shape{2})), (std::vector<float>{3, 7, 11, 15, 19, 23}));
    EXPECT_EQ(ops::argmax(x, Shape{1}).item_as_vec<std::int64_t>(), (std::vector<std::int64_t>(8, 2)));
    EXPECT_EQ(ops::sum(numbers({0, 3}), Shape{0}).shape(), Shape{3});
    EXPECT_EQ(floats(ops::sum(numbers({0, 3}), Shape{0})), (std::vector<float>{0, 0, 0}));
    EXPECT_THROW(ops::amax(numbers({0, 3}), Shape{0}), ValueError);
    EXPECT_EQ(ops::sum(x, Shape{}).shape(), Shape{});
}

TEST(Operators, RowsAndColumnsAddInTheSameOrder) {
    const std::int64_t n = 10'000;
    const Tensor values = ops::exp(ops::mul(ops::tanh(numbers({n})), 7.3));
    const Tensor rows = ops::concat({values, values, values}, 0).reshape({3, n});
    const Tensor columns = ops::copy(rows.permute({1, 0}));
    const auto by_row = floats(ops::sum(rows, Shape{1})), by_column = floats(ops::sum(columns, Shape{0}));
    EXPECT_EQ(by_row, by_column);
    EXPECT_EQ(by_row[0], ops::sum(values).item<float>());
}

TEST(Operators, Matmul) {
    const Tensor a = numbers({2, 3}), b = numbers({3, 2}), v = numbers({3});
    EXPECT_EQ(floats(ops::matmul(a, b)), (std::vector<float>{10, 13, 28, 40}));
    EXPECT_EQ(floats(ops::matmul(a, v)), (std::vector<float>{5, 14}));
    EXPECT_EQ(floats(ops::matmul(v, b)), (std::vector<float>{10, 13}));
    EXPECT_EQ(ops::matmul(v, v).item<float>(), 5);
    EXPECT_EQ(floats(ops::matmul(b.permute({1, 0}), a.permute({1, 0}))), (std::vector<float>{10, 28, 13, 40}));
    EXPECT_EQ(ops::matmul(numbers({5, 1, 2, 3}), numbers({4, 3, 2})).shape(), (Shape{5, 4, 2, 2}));
    EXPECT_EQ(floats(ops::matmul(numbers({2, 0}), numbers({0, 2}))), (std::vector<float>{0, 0, 0, 0}));
    const Tensor i = ops::cast(a, DataType::Int32);
    EXPECT_EQ(ops::matmul(i, ops::cast(b, DataType::Int32)).item_as_vec<std::int32_t>(), (std::vector<std::int32_t>{10, 13, 28, 40}));
    EXPECT_THROW(ops::matmul(i, b), TypeError);
}

TEST(Operators, LargeMatmulIsRightAtEveryBorder) {
    // Sizes that leave odd tiles and tails of one row, cut but not packed and packed; integers, so that float32 is exact.
    const auto pattern = [](std::int64_t rows, std::int64_t columns, int step) {
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * static_cast<std::size_t>(step) % 7) - 3);
        return values;
    };
    for (const auto& [m, k, n] : {std::array<std::int64_t, 3>{645, 77, 1101}, {1025, 1030, 1088}, {1025, 1030, 1089}, {1537, 1000, 1025}}) {
        const auto a = pattern(m, k, 5), b = pattern(k, n, 3);
        const auto c = floats(ops::matmul(Tensor::from_data(a.data(), {m, k}), Tensor::from_data(b.data(), {k, n})));
        for (std::int64_t i = 0; i < m; i += i + 44 < m ? 43 : 1) {
            for (std::int64_t j = 0; j < n; j += j + 88 < n ? 87 : 11) {
                float want = 0;
                for (std::int64_t p = 0; p < k; ++p) want += a[static_cast<std::size_t>(i * k + p)] * b[static_cast<std::size_t>(p * n + j)];
                ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], want) << i << ", " << j << " of " << m << " x " << k << " x " << n;
            }
        }
    }
}

TEST(Operators, ErrorsNameTheOperatorAndShowShapes) {
    try {
        ops::add(numbers({2, 3}), numbers({4}));
        FAIL();
    } catch (const ValueError& error) {
        EXPECT_STREQ(error.what(), "add: shapes [2, 3] and [4] do not broadcast");
        EXPECT_EQ(error.kind(), ErrorKind::Value);
    }
    EXPECT_THROW(ops::exp(ops::full({2}, 1, DataType::Float8E4M3)), NotImplementedError);
    EXPECT_THROW(ops::full({2}, 1, DataType::Float32, Device("cuda:0")), NotImplementedError);
    EXPECT_THROW(ops::full({2}, 1, DataType::Float32, Device("abacus")), ValueError);
    EXPECT_THROW(numbers({2}).item<float>(), Error);
    EXPECT_THROW(numbers({1}).item<double>(), TypeError);
    EXPECT_THROW(Tensor::adopt(nullptr), Error);
}

TEST(Operators, ErrorsHaveClasses) {
    const auto too_large = [] { return ops::full({1}, 300, DataType::Int8); };
    EXPECT_THROW(too_large(), OverflowError);
    EXPECT_THROW(too_large(), ValueError);
    try {
        too_large();
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::Overflow);
    }
    constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
    EXPECT_EQ(ops::full({}, kMost, DataType::UInt64).item<std::uint64_t>(), kMost);
    const Tensor x = ops::ones({2});
    const TracingScope tracing;
    EXPECT_THROW(ops::nonzero(x), RuntimeError);
}

TEST(Operators, Text) {
    EXPECT_EQ(numbers({2, 4}).to_string(), "Tensor(shape=[2, 4], dtype=Float32, device=CPU, numel=8, data=[0, 1, 2, 3, 4, 5, ...])");
    EXPECT_EQ(ops::full({}, true).to_string(), "Tensor(shape=[], dtype=Bool, device=CPU, numel=1, data=[1])");
}
