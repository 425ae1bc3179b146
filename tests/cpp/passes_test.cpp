// Passes over programs: what goes in, and what comes out.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/optimize.h"
#include "graph/passes/common.h"
#include "graph/passes/dead.h"
#include "graph/passes/epilogues.h"
#include "graph/passes/folding.h"
#include "graph/passes/fusion.h"
#include "graph/passes/identities.h"
#include "graph/passes/layout.h"
#include "ops/settle.h"

using namespace clikart;

namespace {

/// Programs written down: each line is a value.
class Writer {
public:
    int32_t input(const Dims& shape, DType dtype = DType::Float32) {
        const int32_t value = add(OpCode::Input, NodeKind::Input, {}, shape, dtype);
        program.inputs.push_back(value);
        return value;
    }
    int32_t product(int32_t a, int32_t b, const Dims& shape, DType dtype = DType::Float32) {
        return add(OpCode::MatMul, NodeKind::Product, {a, b}, shape, dtype);
    }
    int32_t elementwise(OpCode op, std::vector<int32_t> inputs, const Dims& shape, DType dtype = DType::Float32) {
        return add(op, NodeKind::Elementwise, std::move(inputs), shape, dtype);
    }
    Program program;

private:
    int32_t add(OpCode op, NodeKind kind, std::vector<int32_t> inputs, const Dims& shape, DType dtype) {
        program.steps.push_back({op, kind, std::make_shared<const Attributes>(), std::move(inputs), dtype, shape, {}, {}, {}, {}});
        return static_cast<int32_t>(program.steps.size() - 1);
    }
};

std::vector<OpCode> codes(const Program& program) {
    std::vector<OpCode> codes;
    for (const Step& step : program.steps) codes.push_back(step.op);
    return codes;
}

const Dims kRow{3}, kMatrix{2, 3};

}  // namespace

TEST(Epilogues, BiasActivationAndResidualAreFoldedInOrder) {
    Writer w;
    const int32_t x = w.input({2, 4}), b = w.input({4, 3}), bias = w.input(kRow);
    const int32_t sum = w.elementwise(OpCode::Add, {w.product(x, b, kMatrix), bias}, kMatrix);
    const int32_t residual = w.elementwise(OpCode::Exp, {w.input(kMatrix)}, kMatrix);  // made after the product
    const int32_t out = w.elementwise(OpCode::Sub, {w.elementwise(OpCode::Relu, {sum}, kMatrix), residual}, kMatrix);
    w.program.outputs = {out};
    w.program.verify();
    passes::fold_epilogues(w.program);
    w.program.verify();
    ASSERT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Input, OpCode::Input, OpCode::Input, OpCode::Exp, OpCode::MatMul}));
    const Step& product = w.program.steps[5];
    EXPECT_EQ(product.inputs, (std::vector<int32_t>{0, 1, 2, 4}));
    EXPECT_EQ(product.own_inputs(), 2u);
    ASSERT_EQ(product.epilogues.size(), 3u);
    EXPECT_EQ(product.epilogues[0].op, OpCode::Add);
    EXPECT_EQ(product.epilogues[1].op, OpCode::Relu);
    EXPECT_EQ(product.epilogues[1].operands, (std::vector<int32_t>{~1}));
    EXPECT_EQ(product.epilogues[2].op, OpCode::Sub);
    EXPECT_EQ(w.program.outputs, (std::vector<int32_t>{5}));
    w.program.find_ends();
    EXPECT_EQ(product.ends, (std::vector<int32_t>{0, 1, 2, 4}));
}

TEST(Epilogues, WhatOthersReadOrWhatLooksDifferentStays) {
    const auto left_alone = [](auto&& write) {
        Writer w;
        const int32_t x = w.input({2, 4}), b = w.input({4, 3});
        write(w, w.product(x, b, kMatrix));
        const auto before = codes(w.program);
        passes::fold_epilogues(w.program);
        w.program.verify();
        return codes(w.program) == before;
    };
    EXPECT_TRUE(left_alone([](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Relu, {p}, kMatrix), p}; }));  // goes out
    EXPECT_TRUE(left_alone([](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Mul, {p, p}, kMatrix)}; }));   // read twice
    EXPECT_TRUE(left_alone([](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Add, {w.input(kRow), p}, kMatrix)}; }));
    EXPECT_TRUE(left_alone([](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Add, {p, w.input({5, 2, 3})}, {5, 2, 3})}; }));
    EXPECT_TRUE(left_alone([](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Lt, {p, w.input(kRow)}, kMatrix, DType::Bool)}; }));
    EXPECT_TRUE(left_alone(
        [](Writer& w, int32_t p) { w.program.outputs = {w.elementwise(OpCode::Add, {p, w.input(kRow, DType::Float64)}, kMatrix, DType::Float64)}; }));
}

TEST(Common, EqualStepsBecomeOne) {
    Writer w;
    const int32_t x = w.input(kMatrix), y = w.input(kMatrix);
    const int32_t a = w.elementwise(OpCode::Exp, {x}, kMatrix), b = w.elementwise(OpCode::Exp, {x}, kMatrix);
    const int32_t c = w.elementwise(OpCode::Add, {a, y}, kMatrix), d = w.elementwise(OpCode::Add, {b, y}, kMatrix);  // equal once a and b are
    const int32_t other = w.elementwise(OpCode::Add, {y, b}, kMatrix);                                               // of two NaN the first one's bits come out
    w.program.outputs = {w.elementwise(OpCode::Mul, {w.elementwise(OpCode::Sub, {c, d}, kMatrix), other}, kMatrix)};
    passes::merge_common(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Input, OpCode::Exp, OpCode::Add, OpCode::Add, OpCode::Sub, OpCode::Mul}));
    EXPECT_EQ(w.program.steps[5].inputs, (std::vector<int32_t>{3, 3}));
    EXPECT_EQ(w.program.steps[6].inputs, (std::vector<int32_t>{5, 4}));
    EXPECT_EQ(w.program.outputs, (std::vector<int32_t>{6}));
}

TEST(Common, WhatGoesOutAndWhatIsRandomStaysApart) {
    Writer w;
    const int32_t x = w.input(kMatrix);
    const int32_t a = w.elementwise(OpCode::Exp, {x}, kMatrix), b = w.elementwise(OpCode::Exp, {x}, kMatrix);  // of b a view goes out
    const int32_t c = w.elementwise(OpCode::Exp, {x}, kMatrix), d = w.elementwise(OpCode::Exp, {x}, kMatrix);
    w.program.steps.push_back({OpCode::Permute, NodeKind::View, std::make_shared<const Attributes>(), {b}, DType::Float32, {3, 2}, {}, {}, {}, {}});
    w.program.steps.push_back({OpCode::Dropout, NodeKind::Random, std::make_shared<const Attributes>(), {c}, DType::Float32, kMatrix, {}, {}, {}, {}});
    w.program.steps.push_back({OpCode::Dropout, NodeKind::Random, std::make_shared<const Attributes>(), {d}, DType::Float32, kMatrix, {}, {}, {}, {}});
    w.program.outputs = {a, 5, 6, 7};
    passes::merge_common(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Exp, OpCode::Exp, OpCode::Exp, OpCode::Permute, OpCode::Dropout, OpCode::Dropout}));
    EXPECT_EQ(w.program.steps[6].inputs, (std::vector<int32_t>{3}));
}

TEST(Common, NumbersAreOneByTheirBits) {
    Writer w;
    const auto number = [&](double value) {
        w.program.steps.push_back(
            {OpCode::Constant, NodeKind::Constant, std::make_shared<const Attributes>(), {}, DType::Float64, {}, scalar(value), {}, {}, {}});
        return static_cast<int32_t>(w.program.steps.size() - 1);
    };
    const int32_t x = w.input(kMatrix);
    std::vector<int32_t> numbers;
    for (const double value : {1.0, 1.0, 0.0, -0.0, 2.0}) numbers.push_back(number(value));
    int32_t last = x;
    for (const int32_t value : numbers) last = w.elementwise(OpCode::Add, {last, value}, kMatrix);
    w.program.outputs = {last};
    passes::merge_common(w.program);
    w.program.verify();
    const auto all = codes(w.program);
    EXPECT_EQ(std::count(all.begin(), all.end(), OpCode::Constant), 4);
}

TEST(Elementwise, ChainsAndDiamondsBecomeOneStep) {
    Writer w;
    const int32_t x = w.input(kMatrix), y = w.input(kRow);
    const int32_t a = w.elementwise(OpCode::Mul, {x, y}, kMatrix);
    const int32_t b = w.elementwise(OpCode::Tanh, {a}, kMatrix);
    const int32_t out = w.elementwise(OpCode::Sub, {w.elementwise(OpCode::Add, {b, x}, kMatrix), w.elementwise(OpCode::Mul, {b, y}, kMatrix)}, kMatrix);
    w.program.outputs = {out};
    passes::fuse_operators(w.program);
    w.program.verify();
    ASSERT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Input, OpCode::Mul}));
    const Step& step = w.program.steps[2];
    EXPECT_EQ(step.inputs, (std::vector<int32_t>{0, 1}));
    EXPECT_EQ(step.extra, 0u);
    ASSERT_EQ(step.epilogues.size(), 4u);
    EXPECT_EQ(step.epilogues[1].operands, (std::vector<int32_t>{~1, 0}));
    EXPECT_EQ(step.epilogues[2].operands, (std::vector<int32_t>{~1, 1}));
    EXPECT_EQ(step.epilogues[3].operands, (std::vector<int32_t>{~2, ~3}));
}

TEST(Elementwise, WhatStaysApart) {
    const auto untouched = [](auto&& build) {
        Writer w;
        build(w, w.input(kMatrix));
        const auto before = codes(w.program);
        passes::fuse_operators(w.program);
        w.program.verify();
        EXPECT_EQ(codes(w.program), before);
    };
    untouched([](Writer& w, int32_t x) {  // the first goes out as well
        const int32_t a = w.elementwise(OpCode::Exp, {x}, kMatrix);
        w.program.outputs = {w.elementwise(OpCode::Neg, {a}, kMatrix), a};
    });
    untouched([](Writer& w, int32_t x) {  // another shape
        const int32_t a = w.elementwise(OpCode::Exp, {w.input(kRow)}, kRow);
        w.program.outputs = {w.elementwise(OpCode::Add, {x, a}, kMatrix)};
    });
    untouched([](Writer& w, int32_t x) {  // a product reads it too
        const int32_t a = w.elementwise(OpCode::Exp, {x}, kMatrix);
        w.program.outputs = {w.elementwise(OpCode::Neg, {a}, kMatrix), w.product(a, w.input({3, 3}), kMatrix)};
    });
    untouched([](Writer& w, int32_t x) {  // x is written over in between
        const int32_t a = w.elementwise(OpCode::Exp, {x}, kMatrix);
        w.program.steps[static_cast<size_t>(w.elementwise(OpCode::Neg, {x}, kMatrix))].in_place = true;
        w.program.outputs = {w.elementwise(OpCode::Neg, {a}, kMatrix)};
    });
}

TEST(Elementwise, LongChainsBecomeSeveralSteps) {
    Writer w;
    int32_t last = w.input(kRow);
    for (int i = 0; i < 1000; ++i) last = w.elementwise(OpCode::Relu, {last}, kRow);
    w.program.outputs = {last};
    passes::fuse_operators(w.program);
    w.program.verify();
    size_t operators = 0;
    for (const Step& step : w.program.steps) operators += step.is_call() ? 1 + step.epilogues.size() : 0;
    EXPECT_EQ(operators, 1000u);
    EXPECT_LT(w.program.steps.size(), 50u);
}

TEST(Folding, WhatDependsOnNothingIsComputedOnce) {
    Writer w;
    const int32_t x = w.input(kMatrix);
    const auto full = [&](double value) {
        const int32_t constant = w.elementwise(OpCode::Constant, {}, Dims{}, DType::Float64);
        w.program.steps[static_cast<size_t>(constant)].kind = NodeKind::Constant;
        w.program.steps[static_cast<size_t>(constant)].value = scalar(value);
        const int32_t number = w.elementwise(OpCode::Full, {constant}, kMatrix);
        Step& step = w.program.steps[static_cast<size_t>(number)];
        auto attributes = std::make_shared<Attributes>();
        attributes->add_list("full", "shape", kMatrix.data(), 2);
        attributes->add(static_cast<int64_t>(DType::Float32));
        step.kind = NodeKind::Create;
        step.attributes = attributes;
        return number;
    };
    const int32_t mask = w.elementwise(OpCode::Exp, {full(0)}, kMatrix);
    const int32_t out = w.elementwise(OpCode::Add, {x, mask}, kMatrix), own = full(2);
    w.program.outputs = {out, own};
    passes::fold_constants(w.program);
    w.program.verify();
    passes::remove_dead(w.program);
    w.program.verify();
    ASSERT_EQ(codes(w.program),
              (std::vector<OpCode>{OpCode::Input, OpCode::External, OpCode::Add, OpCode::Constant, OpCode::Full}));  // what goes out is the caller's
    const Ref<Tensor>& value = w.program.steps[1].value;
    settle(*value, "test");
    EXPECT_EQ(static_cast<const float*>(value->data())[5], 1);
}

TEST(Dead, WhatNobodyReadsIsGone) {
    Writer w;
    const int32_t x = w.input(kRow);
    const int32_t read = w.elementwise(OpCode::Exp, {x}, kRow), unread = w.elementwise(OpCode::Neg, {x}, kRow);
    const int32_t own = w.elementwise(OpCode::Tanh, {x}, kRow);
    const auto write = [&](int32_t over) { w.program.steps[static_cast<size_t>(w.elementwise(OpCode::Neg, {over}, kRow))].in_place = true; };
    write(own);  // read afterwards
    const int32_t out = w.elementwise(OpCode::Add, {read, own}, kRow);
    write(own);     // not any more
    write(unread);  // never
    write(x);       // the caller sees that
    w.program.outputs = {out};
    passes::remove_dead(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Exp, OpCode::Tanh, OpCode::Neg, OpCode::Add, OpCode::Neg}));
    EXPECT_TRUE(w.program.steps[3].in_place && w.program.steps[3].inputs[0] == 2);
    EXPECT_TRUE(w.program.steps[5].in_place && w.program.steps[5].inputs[0] == 0);
}

TEST(Program, VerifyFindsWhatIsWrong) {
    const auto broken = [](auto&& damage) {
        Writer w;
        const int32_t x = w.input(kRow);
        w.program.outputs = {w.elementwise(OpCode::Exp, {x}, kRow)};
        w.program.verify();
        damage(w.program);
        EXPECT_THROW(w.program.verify(), Failure);
    };
    broken([](Program& p) { p.steps[1].inputs = {1}; });
    broken([](Program& p) { p.steps[1].inputs = {-1}; });
    broken([](Program& p) { p.outputs = {2}; });
    broken([](Program& p) { p.inputs = {1}; });
    broken([](Program& p) { p.steps[0].inputs = {0}; });
    broken([](Program& p) { p.steps[0].kind = NodeKind::External; });
    broken([](Program& p) { p.steps[1].epilogues.push_back({OpCode::Add, nullptr, {~0, 1}, DType::Float32}); });
    broken([](Program& p) { p.steps[1].epilogues.push_back({OpCode::Add, nullptr, {~0, ~1}, DType::Float32}); });
    broken([](Program& p) { p.steps[1].extra = 1; });
    broken([](Program& p) {
        p.steps[1].kind = NodeKind::Product;
        p.steps[1].epilogues.push_back({OpCode::Add, nullptr, {~0, ~0}, DType::Float32});
    });
}

namespace {

/// Of one input and a condition: which(x > 0 ? exp(x) : x + x), behind it what reads that.
Program with_branches() {
    const auto branch = [](bool exp) {
        Writer w;
        w.input({}, DType::Bool);
        const int32_t x = w.input(kRow);
        w.program.outputs = {exp ? w.elementwise(OpCode::Exp, {x}, kRow) : w.elementwise(OpCode::Add, {x, x}, kRow)};
        return std::make_shared<const Program>(w.program);
    };
    Writer w;
    const int32_t condition = w.input({}, DType::Bool), x = w.input(kRow);
    for (int i = 0; i < 2; ++i) {
        const int32_t control = w.elementwise(OpCode::Cond, {condition, x}, {}, DType::Bool);
        w.program.steps[static_cast<size_t>(control)].kind = NodeKind::Control;
        w.program.steps[static_cast<size_t>(control)].regions = {branch(true), branch(false)};
        const int32_t result = w.elementwise(OpCode::Result, {control}, kRow);
        Attributes which;
        which.add(int64_t{0});
        w.program.steps[static_cast<size_t>(result)].kind = NodeKind::Control;
        w.program.steps[static_cast<size_t>(result)].attributes = std::make_shared<const Attributes>(which);
        w.program.outputs.push_back(w.elementwise(OpCode::Relu, {w.elementwise(OpCode::Exp, {result}, kRow)}, kRow));
    }
    w.program.verify();
    return w.program;
}

}  // namespace

TEST(Control, PassesLeaveStepsWithRegionsAloneAndRewriteTheirRegions) {
    Program program = with_branches();
    optimize(program);
    ASSERT_EQ(codes(program), (std::vector<OpCode>{OpCode::Input, OpCode::Input, OpCode::Cond, OpCode::Result, OpCode::Exp, OpCode::Cond, OpCode::Result,
                                                   OpCode::Exp}));  // what follows is put together
    EXPECT_EQ(program.steps[4].epilogues.size(), 1u);
    Program unread = with_branches();
    unread.outputs.pop_back();
    optimize(unread);
    const std::vector<OpCode> left = codes(unread);
    EXPECT_EQ(std::count(left.begin(), left.end(), OpCode::Cond), 1);
}

TEST(Control, VerifyKnowsKindsOfValues) {
    const auto broken = [](auto&& damage) {
        Program program = with_branches();
        damage(program);
        EXPECT_THROW(program.verify(), Failure);
    };
    broken([](Program& p) { p.steps[4].inputs = {2}; });  // a sequence is no tensor
    broken([](Program& p) { p.outputs = {2}; });
    broken([](Program& p) { p.steps[3].inputs = {1}; });  // nor the other way round
    broken([](Program& p) { p.steps[3].attributes = std::make_shared<const Attributes>(); });
    broken([](Program& p) { p.steps[2].regions.pop_back(); });
    broken([](Program& p) { p.steps[2].inputs.pop_back(); });
    broken([](Program& p) { p.steps[4].regions = p.steps[2].regions; });
    broken([](Program& p) { p.inputs.pop_back(); });
}

TEST(Sizes, StepsThatUseThemAreNotFoldedAndEqualByTheirTerms) {
    Writer w;
    const int32_t x = w.input(kRow);
    const auto full = [&](int32_t term) {
        const int32_t value = w.elementwise(OpCode::Full, {}, kRow);
        w.program.steps[static_cast<size_t>(value)].sizes = {{0, term}};
        Attributes shape;
        const int64_t three = 3;
        shape.add_list("full", "shape", &three, 1);
        w.program.steps[static_cast<size_t>(value)].attributes = std::make_shared<const Attributes>(shape);
        return value;
    };
    const int32_t a = full(0), b = full(0), c = full(1);
    w.program.outputs = {w.elementwise(OpCode::Add, {w.elementwise(OpCode::Add, {a, b}, kRow), w.elementwise(OpCode::Add, {c, x}, kRow)}, kRow)};
    w.program.any_sizes = true;
    w.program.verify();
    passes::fold_constants(w.program);
    passes::merge_common(w.program);
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Full, OpCode::Full, OpCode::Add, OpCode::Add, OpCode::Add}));
    w.program.sizes = {{SizeTerm::Op::Size, x, 0}, {SizeTerm::Op::Mul, 0, 0}};
    w.program.verify();
    const auto broken = [&](auto&& damage) {
        Program program = w.program;
        damage(program);
        EXPECT_THROW(program.verify(), Failure);
    };
    broken([](Program& p) { p.sizes.pop_back(); });
    broken([](Program& p) { p.sizes[1].b = 1; });
    broken([](Program& p) { p.sizes[0].a = 99; });
    broken([](Program& p) { p.sizes[0].a = 4; });  // known too late
    broken([](Program& p) { p.steps[1].sizes[0].place = 5; });
    EXPECT_EQ(compute(SizeTerm::Op::FloorDiv, -7, 2), -4);
    EXPECT_EQ(compute(SizeTerm::Op::Mod, -7, 2), 1);
    EXPECT_EQ(compute(SizeTerm::Op::Mod, 7, -2), -1);
    EXPECT_THROW(compute(SizeTerm::Op::Mod, 7, 0), Failure);
    EXPECT_THROW(compute(SizeTerm::Op::FloorDiv, INT64_MIN, -1), Failure);
    EXPECT_THROW(compute(SizeTerm::Op::Mul, INT64_MAX, 2), Failure);
}

namespace {

const Dims kRows{4, 64}, kEach{4, 1};

std::shared_ptr<const Attributes> folding_last(bool keepdim = true) {
    Attributes attributes;
    const int64_t last = -1;
    attributes.add_list("sum", "dims", &last, 1);
    attributes.add(int64_t{keepdim});
    return std::make_shared<const Attributes>(attributes);
}

int32_t sum_of(Writer& w, int32_t x, const Dims& shape = kEach) {
    const int32_t sum = w.elementwise(OpCode::Sum, {x}, shape);
    w.program.steps[static_cast<size_t>(sum)].kind = NodeKind::Reduce;
    w.program.steps[static_cast<size_t>(sum)].attributes = folding_last();
    return sum;
}

int32_t permuted(Writer& w, int32_t x, std::vector<int64_t> dims, const Dims& shape) {
    const int32_t view = w.elementwise(OpCode::Permute, {x}, shape);
    Attributes attributes;
    attributes.add_list("permute", "dims", dims.data(), dims.size());
    w.program.steps[static_cast<size_t>(view)].kind = NodeKind::View;
    w.program.steps[static_cast<size_t>(view)].attributes = std::make_shared<const Attributes>(attributes);
    return view;
}

}  // namespace

TEST(Rows, SumsAreFusedWithWhatIsMadeOfThem) {
    Writer w;
    const int32_t e = w.elementwise(OpCode::Exp, {w.input(kRows)}, kRows);
    const int32_t root = w.elementwise(OpCode::Sqrt, {sum_of(w, e)}, kEach);
    w.program.outputs = {w.elementwise(OpCode::Div, {e, root}, kRows)};
    passes::fuse_operators(w.program);
    w.program.verify();
    ASSERT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Exp}));
    const Step& step = w.program.steps[1];
    ASSERT_EQ(step.epilogues.size(), 3u);
    EXPECT_EQ(step.epilogues[0].op, OpCode::Sum);
    EXPECT_EQ(step.epilogues[2].operands, (std::vector<int32_t>{~0, ~2}));
    EXPECT_TRUE(step.shape == kRows);
}

TEST(Rows, AStepOfOneElementEachEndsAGroup) {
    Writer w;
    w.program.outputs = {w.elementwise(OpCode::Sqrt, {sum_of(w, w.elementwise(OpCode::Exp, {w.input(kRows)}, kRows))}, kEach)};
    passes::fuse_operators(w.program);
    ASSERT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Exp}));
    EXPECT_TRUE(w.program.steps[1].shape == kEach);
}

TEST(Rows, WhatStaysApart) {
    const auto steps_left = [](auto&& build) {
        Writer w;
        w.program.outputs = {build(w)};
        passes::fuse_operators(w.program);
        w.program.verify();
        return codes(w.program).size();
    };
    EXPECT_EQ(steps_left([](Writer& w) { return sum_of(w, w.elementwise(OpCode::Exp, {w.input({4, 8})}, {4, 8})); }), 3u);        // short rows
    EXPECT_EQ(steps_left([](Writer& w) { return sum_of(w, w.elementwise(OpCode::Exp, {w.input({4, 9000})}, {4, 9000})); }), 3u);  // long ones
    EXPECT_EQ(steps_left([](Writer& w) { return sum_of(w, w.elementwise(OpCode::Exp, {w.input(kRows, DType::Int64)}, kRows, DType::Int64)); }), 3u);
    EXPECT_EQ(steps_left([](Writer& w) {  // columns are no rows
                  const int32_t sum = sum_of(w, w.elementwise(OpCode::Exp, {w.input(kRows)}, kRows), {1, 64});
                  Attributes attributes;
                  const int64_t first = 0;
                  attributes.add_list("sum", "dims", &first, 1);
                  attributes.add(int64_t{1});
                  w.program.steps[static_cast<size_t>(sum)].attributes = std::make_shared<const Attributes>(attributes);
                  return sum;
              }),
              3u);
}

TEST(Identities, WhatChangesNothingIsTakenOutButNotWhatGoesOut) {
    Writer w;
    const int32_t x = w.input(kMatrix);
    const int32_t cast = w.elementwise(OpCode::Cast, {x}, kMatrix);
    const int32_t twice = w.elementwise(OpCode::Neg, {w.elementwise(OpCode::Neg, {cast}, kMatrix)}, kMatrix);
    w.program.outputs = {w.elementwise(OpCode::Exp, {twice}, kMatrix), w.elementwise(OpCode::Cast, {x}, kMatrix)};
    passes::remove_identities(w.program);
    passes::remove_dead(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Exp, OpCode::Cast}));
    EXPECT_EQ(w.program.steps[1].inputs, (std::vector<int32_t>{0}));
}

TEST(Layout, PermutationsMeetBehindElementwiseSteps) {
    Writer w;
    const Dims there{2, 3, 5}, back{3, 5, 2};
    const int32_t x = w.input(there), scale = w.input({3, 1, 1});
    const int32_t y = w.elementwise(OpCode::Mul, {permuted(w, x, {1, 2, 0}, back), scale}, back);
    w.program.outputs = {w.elementwise(OpCode::Exp, {permuted(w, w.elementwise(OpCode::Relu, {y}, back), {2, 0, 1}, there)}, there)};
    passes::sink_permutations(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), (std::vector<OpCode>{OpCode::Input, OpCode::Input, OpCode::Permute, OpCode::Mul, OpCode::Relu, OpCode::Exp}));
    EXPECT_TRUE(w.program.steps[2].shape == (Dims{1, 3, 1}));  // of the scale
    EXPECT_TRUE(w.program.steps[3].shape == there);
}

TEST(Layout, WhatGoesOutKeepsItsOrder) {
    Writer w;
    const Dims there{2, 3}, back{3, 2};
    w.program.outputs = {permuted(w, w.elementwise(OpCode::Exp, {permuted(w, w.input(there), {1, 0}, back)}, back), {1, 0}, there)};
    const auto before = codes(w.program);
    passes::sink_permutations(w.program);
    w.program.verify();
    EXPECT_EQ(codes(w.program), before);
    EXPECT_TRUE(w.program.steps[2].shape == back);
}
