// Tracing and running graphs from C++.
#include <gtest/gtest.h>

#include <ClikaRT/clika_rt.h>
#include <thread>

using namespace ClikaRT;
using Tensors = std::vector<Tensor>;

TEST(Graph, RunsByPositionAndByName) {
    const Tensor w = ops::full({3, 2}, 0.5);
    const Tensor a = ops::full({4, 3}, 1.0), b = ops::full({2}, -1.0);
    int calls = 0;
    const auto graph = graph::trace(
        [&](const Tensors& in) {
            ++calls;
            EXPECT_EQ(in[0].shape(), (Shape{4, 3}));
            EXPECT_EQ(in[0].dtype(), DataType::Float32);
            const Tensor y = ops::add(ops::matmul(in[0], w), in[1]);
            return Tensors{ops::relu(y), in[1]};
        },
        {a, b}, {"a", "b"}, {"y", "b again"});
    EXPECT_EQ(graph.input_names(), (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(graph.output_names(), (std::vector<std::string>{"y", "b again"}));
    EXPECT_EQ(ops::amax(graph.run({a, b})[0]).item<float>(), 0.5f);
    const std::map<std::string, Tensor> by_name{{"b", ops::full({2}, 1.0)}, {"a", a}};
    EXPECT_EQ(ops::amax(graph.run(by_name)[0]).item<float>(), 2.5f);
    EXPECT_EQ(graph.run(by_name)[1].item_as_vec<float>(), (std::vector<float>{1, 1}));
    EXPECT_EQ(calls, 1);
    int inputs = 0, products = 0;
    for (const auto& node : graph.nodes()) {
        inputs += node.kind == NodeKind::Input;
        products += node.op_code == OpCode::MatMul && node.shape == Shape{4, 2} && node.inputs.size() == 2;
    }
    EXPECT_EQ(inputs, 2);
    EXPECT_EQ(products, 1);
}

TEST(Graph, ReadingAValueThrowsAndTheThreadComputesAgain) {
    const Tensor x = ops::full({2}, 1.0);
    EXPECT_THROW(graph::trace([](const Tensors& in) { return Tensors{ops::full({1}, ops::sum(in[0]).item<float>())}; }, {x}), Error);
    EXPECT_EQ(ops::sum(x).item<float>(), 2);
    EXPECT_THROW(graph::trace([](const Tensors&) -> Tensors { throw 42; }, {x}), int);
    EXPECT_EQ(ops::sum(x).item<float>(), 2);
}

TEST(Graph, WrongInputsAreRefused) {
    const Tensor x = ops::full({2, 2}, 1.0);
    const auto graph = graph::trace([](const Tensors& in) { return Tensors{ops::exp(in[0])}; }, {x});
    EXPECT_THROW(graph.run(Tensors{}), ValueError);
    EXPECT_THROW(graph.run(Tensors{x, x}), ValueError);
    EXPECT_THROW(graph.run(Tensors{ops::full({3}, 1.0)}), ValueError);
    EXPECT_THROW(graph.run(Tensors{ops::full({2, 2}, 1, DataType::Int32)}), TypeError);
    EXPECT_THROW(graph.run(std::map<std::string, Tensor>{{"nope", x}}), ValueError);
    EXPECT_THROW(graph::trace([](const Tensors& in) { return in; }, {x, x}, {"same", "same"}), ValueError);
    EXPECT_THROW(graph::trace([](const Tensors& in) { return in; }, {x}, {"a", "b"}), ValueError);
}

TEST(Graph, ViewsAndNumbersAreRecorded) {
    const Tensor x = ops::reshape(ops::arange(0.0, 6, 1), {2, 3});
    const auto f = [](const Tensors& in) {
        const Tensor t = in[0].permute({1, 0});
        return Tensors{ops::mul(t.reshape({-1}), 2), ops::slice(t, 0, 1, std::nullopt), ops::concat({in[0], in[0]}, 1)};
    };
    const auto graph = graph::trace(f, {x});
    const Tensors eager = f({x}), replayed = graph.run({x});
    for (std::size_t i = 0; i < eager.size(); ++i) {
        EXPECT_EQ(eager[i].shape(), replayed[i].shape());
        EXPECT_EQ(eager[i].item_as_vec<float>(), replayed[i].item_as_vec<float>());
    }
}

TEST(Graph, ALongChainIsReleasedWithoutRecursion) {
    const Tensor x = ops::full({1}, 0.0);
    const auto graph = graph::trace(
        [](const Tensors& in) {
            Tensor y = in[0];
            for (int i = 0; i < 300'000; ++i) y = ops::relu(y);
            return Tensors{y};
        },
        {x});
    EXPECT_EQ(graph.nodes().size(), 300'001u);
}

TEST(Graph, I11_RunsFromManyThreadsAreIndependent) {
    const Tensor w = ops::full({32, 32}, 1.0 / 32);
    const auto graph = graph::trace([&](const Tensors& in) { return Tensors{ops::sum(ops::matmul(in[0], w))}; }, {w});
    std::vector<std::thread> threads;
    for (int t = 1; t <= 6; ++t) {
        threads.emplace_back([&, t] {
            const Tensor x = ops::full({32, 32}, static_cast<double>(t));
            for (int i = 0; i < 30; ++i) EXPECT_NEAR(graph.run({x})[0].item<float>(), 1024.0f * static_cast<float>(t), 0.5f);
        });
    }
    for (auto& thread : threads) thread.join();
}
