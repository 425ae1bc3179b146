// Graphs, a chapter for each idea: trace, nodes, compile, effects, files.  Run it: every chapter checks what it says.
#include <ClikaRT/clika_rt.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

using namespace ClikaRT;
using Tensors = std::vector<Tensor>;

namespace {

void chapter(const char* title) {
    std::printf("\n== %s\n", title);
}

void require(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "%s does not hold\n", what);
    std::exit(1);
}

std::vector<float> values(const Tensor& t) {
    return t.item_as_vec<float>();
}

}  // namespace

int main() {
    const Tensor w = ops::full({4, 3}, 0.1), b = ops::full({3}, -0.2), x = ops::full({2, 4}, 1.0);
    const auto head = [&](const Tensors& in) { return Tensors{ops::softmax(ops::relu(ops::add(ops::matmul(in[0], w), b)), -1)}; };

    chapter("A function runs once over stand-ins, and is a graph");
    const ModelGraph graph = graph::trace(head, {x}, {"x"}, {"p"});
    std::printf("%s -> %s\n", graph.input_names()[0].c_str(), graph.output_names()[0].c_str());
    require(values(graph.run({x})[0]) == values(head({x})[0]), "the graph computes what the function does");
    require(values(graph.run(std::map<std::string, Tensor>{{"x", x}})[0]) == values(head({x})[0]), "by name, too");

    chapter("Its nodes: the product has taken the bias and the activation with it");
    for (const graph::Node& node : graph.nodes()) {
        if (node.op_code == OpCode::MatMul) {
            require(node.epilogues == std::vector<OpCode>{OpCode::Add, OpCode::Relu}, "bias and activation are folded");
            std::printf("one product of %zu inputs\n", node.inputs.size());
        }
    }

    chapter("A value cannot be read while it is recorded");
    try {
        graph::trace([](const Tensors& in) { return Tensors{ops::mul(in[0], in[0].item_as_vec<float>()[0])}; }, {x});
        require(false, "it throws");
    } catch (const RuntimeError& error) {
        std::printf("%s\n", error.what());
    }

    chapter("compile: the first call runs and is recorded, later ones replay");
    int calls = 0;
    const auto counted = [&](const Tensors& in) {
        ++calls;
        return head(in);
    };
    const Compiled step = compile(counted, {TensorSpec{"x", DataType::Float32, {2, 4}}});
    require(step.state() == State::Pending, "nothing is captured yet");
    for (int i = 0; i < 3; ++i) require(values(step({x})[0]) == values(head({x})[0]), "a replay computes what the function does");
    require(step.state() == State::Compiled && step.recapture_count() == 0, "one capture");
    std::printf("3 calls, %d of the function\n", calls);

    chapter("Other shapes are captured as well, or held by one graph");
    step({ops::full({5, 4}, 1.0)});
    const Compiled dynamic = compile(head, {TensorSpec{"x", DataType::Float32, {2, 4}}}, {.dynamic = true});
    for (const std::int64_t n : {1, 3, 7}) require(dynamic({ops::full({n, 4}, 1.0)})[0].shape() == Shape{n, 3}, "any batch size");
    std::printf("%zu capture more, dynamic %zu\n", step.recapture_count(), dynamic.recapture_count());

    chapter("What cannot be recorded is called every time, or throws");
    const auto branch = [](const Tensors& in) { return Tensors{in[0].item<float>() > 0 ? ops::mul(in[0], 2.0) : ops::neg(in[0])}; };
    const std::vector<TensorSpec> one{{"x", DataType::Float32, {1}}};
    const Compiled fallback = compile(branch, one);
    require(fallback({ops::full({1}, 1.0)})[0].item<float>() == 2 && fallback({ops::full({1}, -1.0)})[0].item<float>() == 1, "both ways are right");
    require(fallback.state() == State::Fallback, "the state tells");
    std::printf("%s\n", fallback.fallback_reason().c_str());
    try {
        compile(branch, one, {.fullgraph = true})({ops::full({1}, 1.0)});
        require(false, "it throws");
    } catch (const RuntimeError& error) {
        std::printf("%s\n", error.what());
    }
    fallback.reset();
    require(fallback.state() == State::Pending, "reset() begins anew");

    chapter("Branches and loops by value are parts of a graph");
    const auto collatz = [](const Tensors& in) {
        const auto goes_on = [](const Tensors& now) { return ops::ne(now[0], 1.0); };
        const auto advance = [](const Tensors& now) {
            const Tensor even = ops::eq(ops::remainder(now[0], 2.0), 0.0);
            const Tensors next = cond(even, [&] { return Tensors{ops::div(now[0], 2.0)}; }, [&] { return Tensors{ops::add(ops::mul(now[0], 3.0), 1.0)}; });
            return Tensors{next[0], ops::add(now[1], 1.0)};
        };
        return Tensors{while_loop(goes_on, advance, {in[0], ops::zeros({})})[1]};
    };
    const Compiled rounds = compile(collatz, {TensorSpec{"n", DataType::Float32, {}}}, {.fullgraph = true});
    for (const auto& [n, expected] : {std::pair{6.0, 8.0f}, {7.0, 16.0f}, {27.0, 111.0f}}) {
        require(values(rounds({ops::full({}, n)})[0])[0] == expected, "the graph goes round as the value says");
    }
    std::printf("27 takes %g rounds, of %zu graph\n", 111.0, rounds.recapture_count() + 1);

    chapter("Writing in place is an effect of the graph");
    const Tensor seen = ops::zeros({4});
    const ModelGraph counting = graph::trace(
        [&](const Tensors& in) {
            ops::add_(seen, ops::mean(in[0], {0}));
            return Tensors{ops::sub(in[0], seen)};
        },
        {x});
    require(values(seen)[0] == 0, "tracing computes nothing");
    for (int i = 0; i < 3; ++i) counting.run({x});
    std::printf("after three runs %g\n", static_cast<double>(values(seen)[0]));
    require(values(seen)[0] == 3, "each run writes");

    chapter("Graphs travel, and results go where one wants them");
    const std::string path = (std::filesystem::temp_directory_path() / "clikart_tracing_example.graph").string();
    graph.save(path);
    const ModelGraph loaded = ModelGraph::load(path);
    const Tensor out = ops::zeros({2, 3});
    loaded.run_into({x}, {out});
    std::filesystem::remove(path);
    require(values(out) == values(head({x})[0]), "the loaded graph computes what the function does");
    require(graph.audit({x}).empty(), "a run has the bits of its operators one by one");
    std::printf("%s -> %s, %lld bytes at most\n", loaded.input_names()[0].c_str(), loaded.output_names()[0].c_str(), static_cast<long long>(loaded.peak()));
}
