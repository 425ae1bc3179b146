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
        products += node.op_code == OpCode::MatMul && node.shape == Shape{4, 2} && node.inputs.size() == 3 &&
                    node.epilogues == std::vector<OpCode>{OpCode::Add, OpCode::Relu};
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
            for (int i = 0; i < 300'000; ++i) y = ops::cos(y);
            return Tensors{y};
        },
        {x});
    EXPECT_GT(graph.nodes().size(), 300'000u / 64);
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

// ---- compile

TEST(Compile, CapturesWhileItRunsAndReplays) {
    int calls = 0;
    const auto step = compile(
        [&](const Tensors& in) {
            ++calls;
            return Tensors{ops::add(in[0], in[1])};
        },
        {TensorSpec{"a", DataType::Float32, {2}}, TensorSpec{"b", DataType::Float32, {2}}});
    EXPECT_EQ(step.state(), State::Pending);
    EXPECT_THROW(step.take_graph(), RuntimeError);
    const Tensor one = ops::full({2}, 1.0), two = ops::full({2}, 2.0);
    EXPECT_EQ(step({one, one})[0].item_as_vec<float>(), (std::vector<float>{2, 2}));  // one tensor for two inputs
    EXPECT_EQ(step({one, two})[0].item_as_vec<float>(), (std::vector<float>{3, 3}));
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(step.state(), State::Compiled);
    EXPECT_EQ(step.take_graph().input_names(), (std::vector<std::string>{"a", "b"}));
    const Tensor wide = ops::full({5}, 1.0);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(step({wide, wide})[0].shape(), Shape{5});
    EXPECT_EQ(step.recapture_count(), 1u);
    EXPECT_THROW(step({one}), ValueError);
    EXPECT_THROW(step({one, ops::full({2, 1}, 1.0)}), ValueError);
    EXPECT_THROW(step({one, ops::cast(one, DataType::Int32)}), TypeError);
    step.reset();
    EXPECT_EQ(step.state(), State::Pending);
    EXPECT_EQ(step({one, two})[0].item_as_vec<float>(), (std::vector<float>{3, 3}));
    EXPECT_EQ(calls, 3);
}

TEST(Compile, FallsBackOrThrowsAtWhatCannotBeRecorded) {
    int calls = 0;
    const auto branch = [&](const Tensors& in) {
        ++calls;
        return Tensors{in[0].item<float>() > 0 ? ops::mul(in[0], 2.0) : in[0]};
    };
    const std::vector<TensorSpec> specs{{"x", DataType::Float32, {1}}};
    const auto step = compile(branch, specs);
    EXPECT_EQ(step({ops::full({1}, 3.0)})[0].item<float>(), 6.0f);
    EXPECT_EQ(step({ops::full({1}, -3.0)})[0].item<float>(), -3.0f);
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(step.state(), State::Fallback);
    EXPECT_NE(step.fallback_reason().find("is read"), std::string::npos);
    const auto strict = compile(branch, specs, {.dynamic = false, .fullgraph = true});
    for (int i = 0; i < 2; ++i) EXPECT_THROW(strict({ops::full({1}, 3.0)}), RuntimeError);
    EXPECT_EQ(strict.state(), State::Pending);
    const auto broken = compile([](const Tensors&) -> Tensors { throw 42; }, specs);
    EXPECT_THROW(broken({ops::full({1}, 3.0)}), int);
    EXPECT_FALSE(clikart_capturing());
}

TEST(Compile, DynamicHoldsForOtherSizesUnlessTheyWereAskedFor) {
    const std::vector<TensorSpec> specs{{"x", DataType::Float32, {2}}};
    const auto blind = compile([](const Tensors& in) { return Tensors{ops::exp(in[0])}; }, specs, {.dynamic = true});
    const auto asking = compile([](const Tensors& in) { return Tensors{ops::mul(in[0], static_cast<double>(in[0].shape()[0]))}; }, specs, {.dynamic = true});
    for (const std::int64_t n : {2, 3, 7}) {
        EXPECT_EQ(blind({ops::full({n}, 0.0)})[0].shape(), Shape{n});
        EXPECT_EQ(asking({ops::full({n}, 1.0)})[0].item_as_vec<float>()[0], static_cast<float>(n));
    }
    EXPECT_EQ(blind.recapture_count(), 0u);
    EXPECT_EQ(asking.recapture_count(), 2u);
}

TEST(Compile, DynamicTakesTheGraphThatHolds) {
    const auto fn = [](const Tensors& in) { return Tensors{clikart_tensor_is_contiguous(in[0].handle()) ? ops::exp(in[0]) : ops::neg(in[0])}; };
    const auto step = compile(fn, {{"x", DataType::Float32, {2, 2}}}, {.dynamic = true});
    for (const std::int64_t n : {2, 3, 4, 3}) {
        const Tensor dense = ops::full({n, 2}, 1.0), view = ops::permute(dense, {1, 0});
        for (const Tensor& x : {dense, view}) {
            EXPECT_EQ(step({x})[0].item_as_vec<float>(), fn({x})[0].item_as_vec<float>());
        }
    }
    EXPECT_EQ(step.recapture_count(), 1u);
    const ModelGraph graph = step.take_graph();
    ASSERT_EQ(graph.conditions(), std::vector<std::string>{"not x.is_contiguous()"});
    EXPECT_FALSE(graph.holds({ops::full({5, 2}, 1.0)}));
    EXPECT_THROW(graph.run({ops::full({5, 2}, 1.0)}), ValueError);
    EXPECT_THROW(graph.holds({ops::full({5}, 1.0)}), ValueError);
}

TEST(Graph, BranchesAndLoopsGoAsValuesSay) {
    const auto fn = [](const Tensors& in) {
        const Tensor three = ops::mul(in[0], 3.0);
        const Tensors chosen = cond(ops::gt(ops::sum(in[0]), 0.0), [&] { return Tensors{ops::add(in[0], three)}; }, [&] { return Tensors{three}; });
        const auto small = [](const Tensors& now) { return ops::lt(ops::sum(now[0]), 100.0); };
        return while_loop(small, [&](const Tensors& now) { return Tensors{ops::add(ops::mul(ops::abs(now[0]), 2.0), ops::abs(three))}; }, chosen);
    };
    const Tensor positive = ops::full({2}, 1.5), negative = ops::full({2}, -2.0);
    const auto graph = graph::trace(fn, {positive});
    const auto step = compile(fn, {{"x", DataType::Float32, {2}}}, {.fullgraph = true});
    for (const Tensor& x : {positive, negative, positive}) {
        const auto want = fn({x})[0].item_as_vec<float>();
        EXPECT_EQ(graph.run({x})[0].item_as_vec<float>(), want);
        EXPECT_EQ(step({x})[0].item_as_vec<float>(), want);
    }
    EXPECT_EQ(step.recapture_count(), 0u);
    const auto nodes = graph.nodes();
    const auto loop = std::find_if(nodes.begin(), nodes.end(), [](const auto& node) { return node.op_code == OpCode::WhileLoop; });
    ASSERT_NE(loop, nodes.end());
    EXPECT_EQ(graph.region(static_cast<std::size_t>(loop - nodes.begin()), 1).output_names().size(), 1u);
    EXPECT_THROW(graph.region(0, 0), IndexError);
    // What a graph cannot have is called.
    const auto draws = [](const Tensors& in) { return cond(ops::gt(ops::sum(in[0]), 0.0), [&] { return Tensors{ops::dropout(in[0])}; }, [&] { return in; }); };
    const auto falls = compile(draws, {{"x", DataType::Float32, {2}}});
    EXPECT_EQ(falls({negative})[0].item_as_vec<float>(), negative.item_as_vec<float>());
    EXPECT_EQ(falls.state(), State::Fallback);
    EXPECT_THROW(graph::trace(draws, {positive}), NotImplementedError);
    EXPECT_FALSE(clikart_capturing());
}

TEST(Graph, RegionsTakeWhatTheyWereMadeFor) {
    for (const bool running : {false, true}) {  // without any word of sizes
        const Tensor x = ops::full({4}, 1.0);
        ASSERT_EQ(running ? clikart_capture_begin_running(true) : clikart_capture_begin(), 0);
        const std::int64_t four = 4;
        const Tensor in = Tensor::adopt(running ? clikart_capture_value("x", x.handle()) : clikart_capture_input("x", CLIKART_FLOAT32, &four, 1));
        const Tensor y = cond(ops::gt(ops::sum(in), 0.0), [&] { return Tensors{ops::mul(in, 2.0)}; }, [&] { return Tensors{in}; })[0];
        clikart_tensor* const outputs[] = {y.handle()};
        const char* const names[] = {"y"};
        const clikart_graph_options options{sizeof options, true, 2};
        const ModelGraph graph = ModelGraph::adopt(clikart_capture_end_with(outputs, names, 1, &options));
        EXPECT_EQ(graph.run({x})[0].item_as_vec<float>(), std::vector<float>(4, 2.0f));
        EXPECT_THROW(graph.run({ops::full({4000}, 1.0)}), ValueError);
        EXPECT_FALSE(graph.holds({ops::full({4000}, 1.0)}));
    }
    const std::int64_t two = 2;  // a parameter that is another
    ASSERT_EQ(clikart_capture_begin(), 0);
    const Tensor in = Tensor::adopt(clikart_capture_input("x", CLIKART_FLOAT32, &two, 1)), large = ops::full({1000}, 1.0);
    const auto region = [&](bool test) {
        clikart_region_begin();
        const Tensor parameter = Tensor::adopt(clikart_region_input(in.handle()));
        const Tensor result = test ? ops::gt(ops::sum(parameter), 0.0) : ops::mul(parameter, 2.0);
        clikart_tensor* const handle = result.handle();
        return clikart_region_end(&handle, 1);
    };
    clikart_region *const test = region(true), *const body = region(false);
    clikart_tensor *carried = large.handle(), *output = nullptr;
    EXPECT_EQ(clikart_while_loop(&carried, test, body, &output, 1), -1);
    clikart_capture_cancel();
    for (clikart_region* made : {test, body}) {
        clikart_region_retain(made);
        clikart_region_release(made);
        clikart_region_release(made);
    }
}

TEST(Compile, AGraphThatHoldsForOthersStays) {
    const auto step = compile([](const Tensors& in) { return Tensors{ops::mul(in[0], static_cast<double>(in[0].shape()[0] > 0))}; },
                              {{"x", DataType::Float32, {1}}}, {.dynamic = true});
    const auto blind = compile([](const Tensors& in) { return Tensors{ops::exp(in[0])}; }, {{"x", DataType::Float32, {1}}}, {.dynamic = true});
    for (int round = 0; round < 2; ++round) {
        for (std::int64_t n = 1; n < 70; ++n) {
            step({ops::full({n}, 1.0)});
            EXPECT_EQ(blind({ops::full({n}, 0.0)})[0].item_as_vec<float>(), std::vector<float>(static_cast<std::size_t>(n), 1.0f));
        }
    }
    EXPECT_EQ(blind.recapture_count(), 0u);
    EXPECT_GT(step.recapture_count(), 68u);  // each size is one that C++ looks at
}

TEST(Graph, RegionsThatAreNone) {
    const Tensor x = ops::full({2}, 1.0);
    EXPECT_EQ(clikart_region_begin(), -1);
    EXPECT_EQ(clikart_region_end(nullptr, 0), nullptr);
    clikart_region_cancel();
    ASSERT_EQ(clikart_capture_begin(), 0);
    EXPECT_EQ(clikart_region_input(x.handle()), nullptr);
    EXPECT_EQ(clikart_region_end(nullptr, 0), nullptr);
    ASSERT_EQ(clikart_region_begin(), 0);
    clikart_capture_cancel();  // ends both
    EXPECT_EQ(ops::add(x, x).item_as_vec<float>()[0], 2.0f);
    ASSERT_EQ(clikart_capture_begin(), 0);
    ASSERT_EQ(clikart_region_begin(), 0);
    clikart_region* const empty = clikart_region_end(nullptr, 0);
    ASSERT_NE(empty, nullptr);
    clikart_tensor* output = nullptr;
    EXPECT_EQ(clikart_cond(x.handle(), empty, empty, &output, 0), -1);
    EXPECT_EQ(clikart_cond(x.handle(), empty, nullptr, &output, 1), -1);
    EXPECT_EQ(clikart_cond(x.handle(), reinterpret_cast<clikart_region*>(x.handle()), empty, &output, 0), -1);
    EXPECT_EQ(clikart_while_loop(nullptr, empty, empty, &output, 1), -1);
    clikart_capture_cancel();
    ASSERT_EQ(clikart_capture_begin(), 0);
    EXPECT_EQ(clikart_cond(x.handle(), empty, empty, &output, 0), -1);  // of another capture
    clikart_capture_cancel();
    clikart_region_release(empty);
    clikart_region_release(nullptr);
}

TEST(Capture, SizesFollowTheInputs) {
    const std::int64_t from[] = {2, 3};
    const Tensor x = ops::full({from[0], from[1]}, 1.0), other = ops::full({7}, 0.0);
    ASSERT_EQ(clikart_capture_begin_any_sizes(true), 0);
    const Tensor in = Tensor::adopt(clikart_capture_value("x", x.handle()));
    std::int64_t now = 0;
    const std::int64_t rows = clikart_capture_size(in.handle(), 0, &now), columns = clikart_capture_size(in.handle(), 1, nullptr);
    EXPECT_EQ(now, 2);
    EXPECT_LT(rows, -1);
    EXPECT_EQ(clikart_capture_size(in.handle(), 2, nullptr), -1);
    EXPECT_EQ(clikart_capture_size(other.handle(), 0, nullptr), 7);  // which is always that
    const std::int64_t all = clikart_capture_computed_size(CLIKART_SIZE_MUL, rows, columns);
    EXPECT_EQ(clikart_capture_computed_size(99, rows, columns), -1);
    EXPECT_EQ(clikart_capture_computed_size(CLIKART_SIZE_FLOOR_DIVIDE, rows, 0), -1);
    EXPECT_EQ(clikart_capture_computed_size(CLIKART_SIZE_ADD, rows + 1000, 0), -1);  // the code of nothing
    EXPECT_EQ(clikart_capture_require_size(clikart_capture_computed_size(CLIKART_SIZE_LESS, rows, columns)), 0);
    const Tensor number = Tensor::adopt(clikart_capture_size_number(all));
    const Tensor y = ops::mul(ops::reshape(in, {all}), number);
    clikart_tensor* const outputs[] = {y.handle()};
    const char* const names[] = {"y"};
    const clikart_graph_options options{sizeof options, true, 2};
    const ModelGraph graph = ModelGraph::adopt(clikart_capture_end_with(outputs, names, 1, &options));
    EXPECT_EQ(graph.run({ops::full({4, 5}, 1.0)})[0].item_as_vec<float>(), std::vector<float>(20, 20.0f));
    EXPECT_EQ(graph.conditions(), std::vector<std::string>{"x.shape[0] < x.shape[1]"});
    EXPECT_THROW(graph.run({ops::full({5, 4}, 1.0)}), ValueError);
    EXPECT_EQ(clikart_capture_require_size(rows), -1);  // nothing is recorded
    EXPECT_EQ(clikart_capture_size_number(rows), nullptr);
    EXPECT_EQ(clikart_graph_condition(graph.handle(), 1), nullptr);
    EXPECT_EQ(clikart_graph_holds(nullptr, nullptr, 0), -1);
}

TEST(Compile, ManyThreadsCallOne) {
    const auto step = compile([](const Tensors& in) { return Tensors{ops::add(ops::mul(in[0], 2.0), 1.0)}; }, {{"x", DataType::Float32, {1}}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
            for (int i = 1; i < 20; ++i) {
                const Tensor x = ops::full({1 + (i + t) % 3}, static_cast<double>(i));
                EXPECT_EQ(step({x})[0].item_as_vec<float>()[0], static_cast<float>(2 * i + 1));
            }
        });
    }
    for (auto& thread : threads) thread.join();
}

TEST(Compile, LayoutsAndResetsAndManyGraphs) {
    const std::vector<TensorSpec> specs{{"x", DataType::Float32, {2, 3}}};
    const auto step = compile([](const Tensors& in) { return Tensors{ops::mul(in[0], clikart_tensor_is_contiguous(in[0].handle()) ? 1.0 : 2.0)}; }, specs);
    const Tensor dense = ops::full({2, 3}, 1.0), turned = ops::permute(ops::full({3, 2}, 1.0), {1, 0});
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(step({dense})[0].item_as_vec<float>()[0], 1.0f);
        EXPECT_EQ(step({turned})[0].item_as_vec<float>()[0], 2.0f);
    }
    EXPECT_EQ(step.recapture_count(), 1u);
    for (std::int64_t n = 3; n < 80; ++n) step({ops::full({n, 3}, 1.0)});
    EXPECT_EQ(step.recapture_count(), 78u);
    step({ops::full({79, 3}, 1.0)});
    EXPECT_EQ(step.recapture_count(), 78u);
    std::unique_ptr<Compiled> inner;
    inner = std::make_unique<Compiled>(
        [&](const Tensors& in) {
            inner->reset();  // undoes the capture that is under way
            return Tensors{ops::exp(in[0])};
        },
        specs, CompileOptions{});
    (*inner)({dense});
    EXPECT_EQ(inner->state(), State::Pending);
    EXPECT_THROW(compile([](const Tensors& in) { return in; }, {specs[0], specs[0]}), ValueError);
    EXPECT_THROW(compile([](const Tensors& in) { return in; }, specs, {.optimize = 3}), ValueError);
}

TEST(Compile, APartOfADynamicCaptureAsksForNoSizes) {
    const std::vector<TensorSpec> specs{{"x", DataType::Float32, {2}}};
    const auto inner = compile([](const Tensors& in) { return Tensors{ops::exp(in[0])}; }, specs);
    const auto outer = compile([&](const Tensors& in) { return inner(in); }, specs, {.dynamic = true});
    for (const std::int64_t n : {2, 3}) EXPECT_EQ(outer({ops::full({n}, 0.0)})[0].shape(), Shape{n});
    EXPECT_EQ(outer.recapture_count(), 0u);
    EXPECT_EQ(inner.state(), State::Pending);
}

TEST(Capture, WhatIsNoCaptureIsRefused) {
    const Tensor x = ops::full({2}, 1.0);
    EXPECT_EQ(clikart_capture_obstacle(), nullptr);
    ASSERT_EQ(clikart_capture_begin_running(false), 0);
    EXPECT_LT(clikart_set_mode(CLIKART_MODE_CAPTURE), 0);
    const std::int64_t size = 2;
    EXPECT_EQ(clikart_capture_input("x", CLIKART_FLOAT32, &size, 1), nullptr);  // has no value
    EXPECT_LT(clikart_capture_begin_running(false), 0);
    EXPECT_STREQ(clikart_capture_obstacle(), "");
    ASSERT_EQ(clikart_capture_begin(), 0);  // one within the other
    EXPECT_LT(clikart_capture_begin(), 0);
    clikart_capture_cancel();
    EXPECT_STREQ(clikart_capture_obstacle(), "another graph is recorded");
    clikart_capture_cancel();
    std::thread([] { clikart_capture_begin_running(false); }).join();  // ends in the middle
    ASSERT_EQ(clikart_capture_begin(), 0);
    EXPECT_EQ(clikart_capture_value("x", x.handle()), nullptr);  // has one
    clikart_capture_cancel();
    EXPECT_EQ(ops::add(x, x).item_as_vec<float>()[0], 2.0f);
    const clikart_graph_options small{4, false, 2}, level{sizeof level, false, 7};
    for (const auto* options : {&small, &level}) {
        ASSERT_EQ(clikart_capture_begin(), 0);
        EXPECT_EQ(clikart_capture_end_with(nullptr, nullptr, 0, options), nullptr);
        EXPECT_FALSE(clikart_capturing());
    }
}

// ---- writing in place ------------------------------------------------------------------------------------------------

TEST(Graph, WritesAreEffectsInTheirOrder) {
    const Tensor seen = ops::zeros({3});
    const auto f = [&](const Tensors& in) {
        const Tensor before = ops::add(in[0], 0);
        ops::add_(seen, in[0]);
        ops::mul_(in[0], 2);
        return Tensors{before, in[0], ops::add(seen, 0)};
    };
    const auto graph = graph::trace(f, {ops::ones({3})});
    EXPECT_EQ(seen.item_as_vec<float>(), (std::vector<float>{0, 0, 0}));
    for (float i = 1; i <= 3; ++i) {
        const Tensor x = ops::ones({3});
        const Tensors out = graph.run({x});
        EXPECT_EQ(out[0].item_as_vec<float>(), (std::vector<float>{1, 1, 1}));
        EXPECT_EQ(x.item_as_vec<float>(), (std::vector<float>{2, 2, 2}));
        EXPECT_EQ(out[2].item_as_vec<float>(), (std::vector<float>{i, i, i}));
    }
    EXPECT_EQ(seen.item_as_vec<float>(), (std::vector<float>{3, 3, 3}));
    int writes = 0;
    for (const auto& node : graph.nodes()) writes += node.in_place;
    EXPECT_EQ(writes, 2);
}

TEST(Graph, RunsThatWriteKeepTheirOrderWithOtherCalls) {
    const Tensor total = ops::zeros({1000});
    const auto graph = graph::trace(
        [&](const Tensors& in) {
            ops::add_(total, in[0]);
            return Tensors{ops::add(total, 0)};
        },
        {ops::ones({1000})});
    const Stream other = Stream::create(Device("cpu"));
    std::vector<Tensor> results;
    for (int i = 0; i < 50; ++i) {
        const StreamScope scope(other);
        results.push_back(graph.run({ops::ones({1000})})[0]);
    }
    for (int i = 0; i < 50; ++i) EXPECT_EQ(results[static_cast<std::size_t>(i)].item_as_vec<float>()[7], static_cast<float>(i + 1));
}

// ---- plans -----------------------------------------------------------------------------------------------------------

TEST(Graph, OutputsOfEarlierRunsStay) {
    const auto graph = graph::trace([](const Tensors& in) { return Tensors{ops::softmax(ops::exp(in[0]), 0), ops::cumsum(in[0], 0)}; }, {ops::ones({64})});
    std::vector<Tensors> runs;
    for (int i = 0; i < 100; ++i) runs.push_back(graph.run({ops::full({64}, i, DataType::Float32)}));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(runs[static_cast<std::size_t>(i)][1].item_as_vec<float>()[63], static_cast<float>(64 * i));
}

TEST(Graph, InputsMayLieInAnyWay) {
    const auto f = [](const Tensors& in) {
        return Tensors{ops::reshape(in[0], {-1}), ops::matmul(in[0], in[0]), ops::slice(in[0], 0, 1, 3), ops::tanh(ops::exp(in[0]))};
    };
    const Tensor base = ops::reshape(ops::arange(0.0, 64, 1), {8, 8});
    const auto graph = graph::trace(f, {ops::ones({4, 4})});
    const Tensors inputs{ops::reshape(ops::arange(0.0, 16, 1), {4, 4}), ops::slice(ops::slice(base, 0, 2, 6), 1, 1, 5),
                         base.permute({1, 0})[0].reshape({2, 4}).reshape({4, 2}), ops::expand(ops::ones({1, 4}), {4, 4}),
                         ops::slice(ops::slice(base, 0, 0, 8, 2), 1, 0, 8, 2).permute({1, 0})};
    for (const Tensor& x : inputs) {
        if (x.shape() != Shape{4, 4}) continue;
        for (int again = 0; again < 2; ++again) {
            const Tensors got = graph.run({x}), want = f({x});
            for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].item_as_vec<float>(), want[i].item_as_vec<float>());
        }
    }
}

TEST(Graph, AFailureNamesTheOperatorAndSpoilsWhatDependsOnIt) {
    const Tensor table = ops::ones({4, 2});
    set_tag("where it was traced");
    const auto graph = graph::trace([&](const Tensors& in) { return Tensors{ops::exp(ops::embedding(in[0], table)), ops::add(in[0], 1)}; },
                                    {ops::zeros({3}, DataType::Int64)});
    set_tag("");
    const Tensors out = graph.run({ops::full({3}, 9, DataType::Int64)});
    EXPECT_EQ(out[1].item_as_vec<std::int64_t>()[2], 10);
    try {
        static_cast<void>(out[0].item_as_vec<float>());
        FAIL();
    } catch (const IndexError& error) {
        const std::string text = error.what();
        EXPECT_TRUE(text.starts_with("embedding: ")) << text;
        EXPECT_NE(text.find("int64 [3], float32 [4, 2] to float32 [3, 2]"), std::string::npos) << text;
        EXPECT_NE(text.find("recorded at where it was traced"), std::string::npos) << text;
    }
    EXPECT_EQ(graph.run({ops::zeros({3}, DataType::Int64)})[1].item_as_vec<int64_t>()[2], 1);
}

TEST(Graph, ResultsGoToTheCallersMemory) {
    const auto graph = graph::trace([](const Tensors& in) { return Tensors{ops::mul(in[0], 2), ops::cumsum(in[0], 0)}; }, {ops::ones({3})});
    const Tensor a = ops::zeros({3}), b = ops::zeros({3});
    graph.run_into({ops::ones({3})}, {a, b});
    EXPECT_EQ(a.item_as_vec<float>(), (std::vector<float>{2, 2, 2}));
    EXPECT_EQ(b.item_as_vec<float>(), (std::vector<float>{1, 2, 3}));
    graph.run_into({b}, {b, b});  // not the same memory twice, and not an input's
    EXPECT_EQ(b.item_as_vec<float>(), (std::vector<float>{1, 3, 6}));
    EXPECT_THROW(graph.run_into({a}, {a}), ValueError);
    EXPECT_THROW(graph.run_into({a}, {a, ops::zeros({4})}), ValueError);
    EXPECT_THROW(graph.run_into({a}, {a, ops::zeros({3}, DataType::Int32)}), TypeError);
    EXPECT_GT(graph.peak(), 0);
    EXPECT_EQ(graph.audit({a}), "");
}

TEST(Graph, WeightsThatAreWrittenArePackedAnew) {
    const Tensor w = ops::full({256, 256}, 1.0 / 256);
    const auto graph = graph::trace([&](const Tensors& in) { return Tensors{ops::matmul(in[0], w)}; }, {ops::ones({64, 256})});
    const Tensor x = ops::ones({64, 256});
    for (int i = 1; i <= 3; ++i) {
        for (int again = 0; again < 2; ++again) EXPECT_EQ(graph.run({x})[0].item_as_vec<float>()[5], static_cast<float>(1 << (i - 1)));
        ops::mul_(w, 2);
    }
}

TEST(Graph, FilesHoldGraphs) {
    const std::string path = testing::TempDir() + "clikart_graph_test.graph";
    const Tensor w = ops::reshape(ops::arange(0.0, 6, 1), {3, 2});
    const auto graph =
        graph::trace([&](const Tensors& in) { return Tensors{ops::relu(ops::add(ops::matmul(in[0], w), -3))}; }, {ops::ones({2, 3})}, {"x"}, {"y"});
    graph.save(path);
    const auto loaded = graph::ModelGraph::load(path);
    EXPECT_EQ(loaded.input_names(), graph.input_names());
    EXPECT_EQ(loaded.output_names(), graph.output_names());
    const Tensor x = ops::full({2, 3}, 0.5);
    EXPECT_EQ(loaded.run({x})[0].item_as_vec<float>(), graph.run({x})[0].item_as_vec<float>());
    EXPECT_THROW(graph::ModelGraph::load(path + ".not there"), Error);
    std::remove(path.c_str());
}
