#include "graph/program.h"

#include <algorithm>
#include <unordered_map>

#include "ops/rules.h"

namespace clikart {

std::string title_of(const Step& step) {
    std::string title = op_info(step.op).name;
    for (const Epilogue& epilogue : step.epilogues) title += fmt::format(" + {}", op_info(epilogue.op).name);
    return title;
}

bool reads_any(const Step& step, const std::vector<bool>& marked) {
    return std::any_of(step.inputs.begin(), step.inputs.end(), [&](int32_t value) { return marked[static_cast<size_t>(value)]; });
}

std::vector<int32_t> Program::count_uses() const {
    std::vector<int32_t> uses(steps.size(), 0);
    for (const Step& step : steps) {
        for (const int32_t value : step.inputs) ++uses[static_cast<size_t>(value)];
    }
    for (const int32_t value : outputs) ++uses[static_cast<size_t>(value)];
    return uses;
}

namespace {

/// The first step of each memory from outside.  What the host lent may be one memory in several storages: those that overlap count as one.
std::unordered_map<const Storage*, int32_t> find_memories(const Program& program) {
    struct Lent {
        const char *begin, *end;
        const Storage* storage;
        int32_t step;
    };
    std::unordered_map<const Storage*, int32_t> first;
    std::vector<Lent> lent;
    for (size_t i = 0; i < program.steps.size(); ++i) {
        if (!program.steps[i].value) continue;
        const Storage& storage = program.steps[i].value->storage();
        const auto step = static_cast<int32_t>(i);
        if (!first.emplace(&storage, step).second || !storage.host_visible()) continue;
        const auto* const begin = static_cast<const char*>(storage.data());
        lent.push_back({begin, begin + storage.bytes(), &storage, step});
    }
    std::sort(lent.begin(), lent.end(), [](const Lent& a, const Lent& b) { return a.begin < b.begin; });
    for (size_t i = 0; i < lent.size();) {
        size_t last = i + 1;
        int32_t least = lent[i].step;
        for (const char* end = lent[i].end; last < lent.size() && lent[last].begin < end; ++last) {
            end = std::max(end, lent[last].end);
            least = std::min(least, lent[last].step);
        }
        for (; i < last; ++i) first[lent[i].storage] = least;
    }
    return first;
}

}  // namespace

std::vector<int32_t> Program::find_roots() const {
    std::vector<int32_t> roots(steps.size());
    const std::unordered_map<const Storage*, int32_t> outside = find_memories(*this);
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        roots[i] = static_cast<int32_t>(i);
        if (step.kind == NodeKind::View || step.in_place) roots[i] = roots[static_cast<size_t>(step.inputs[0])];
        if (step.value) roots[i] = outside.at(&step.value->storage());
    }
    return roots;
}

std::vector<bool> Program::find_written() const {
    const std::vector<int32_t> roots = find_roots();
    std::vector<bool> written(steps.size(), false);
    for (size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].in_place) written[static_cast<size_t>(roots[i])] = true;
    }
    for (size_t i = 0; i < steps.size(); ++i) written[i] = written[static_cast<size_t>(roots[i])];
    return written;
}

std::vector<bool> Program::find_escaping() const {
    std::vector<bool> escapes(steps.size(), false);
    for (const int32_t value : outputs) escapes[static_cast<size_t>(value)] = true;
    for (size_t i = steps.size(); i-- > 0;) {
        if (escapes[i] && steps[i].kind == NodeKind::View) escapes[static_cast<size_t>(steps[i].inputs[0])] = true;
    }
    return escapes;
}

std::vector<bool> Program::find_layout_bound() const {
    const auto looks_at_elements = [](const Step& step) {
        if (!step.is_call()) return false;
        switch (step.kind) {
            case NodeKind::Elementwise:
            case NodeKind::Reduce:
            case NodeKind::Row:
            case NodeKind::Window: return true;
            default: {  // convolutions bring their operands together first
                const auto rule = op_info(step.op).shape;
                return (rule == &shape_convolution || rule == &shape_transposed_convolution);
            }
        }
    };
    std::vector<bool> bound(steps.size(), false);
    for (const int32_t value : outputs) bound[static_cast<size_t>(value)] = true;
    for (size_t i = steps.size(); i-- > 0;) {
        const Step& step = steps[i];
        const bool passes_on = step.kind == NodeKind::View && step.op != OpCode::AsStrided && step.op != OpCode::ViewDtype && !bound[i];
        if (passes_on || (looks_at_elements(step) && !step.in_place)) continue;
        for (const int32_t value : step.inputs) bound[static_cast<size_t>(value)] = true;
    }
    return bound;
}

void Program::remove(const std::vector<bool>& gone) {
    std::vector<int32_t> number(steps.size(), -1);
    size_t kept = 0;
    for (size_t i = 0; i < steps.size(); ++i) {
        if (gone[i]) continue;
        number[i] = static_cast<int32_t>(kept);
        if (kept != i) steps[kept] = std::move(steps[i]);
        ++kept;
    }
    steps.resize(kept);
    const auto renumber = [&](int32_t& value) { value = number[static_cast<size_t>(value)]; };
    for (Step& step : steps) {
        for (int32_t& value : step.inputs) renumber(value);
    }
    for (int32_t& value : inputs) renumber(value);
    for (int32_t& value : outputs) renumber(value);
}

void Program::find_ends() {
    std::vector<int32_t> last(steps.size(), -1);
    for (size_t i = 0; i < steps.size(); ++i) {
        steps[i].ends.clear();
        if (steps[i].kind == NodeKind::Random) last[i] = static_cast<int32_t>(i);  // perhaps nobody reads it
        for (const int32_t value : steps[i].inputs) last[static_cast<size_t>(value)] = static_cast<int32_t>(i);
    }
    for (const int32_t value : outputs) last[static_cast<size_t>(value)] = -1;
    for (size_t value = 0; value < last.size(); ++value) {
        if (last[value] >= 0) steps[static_cast<size_t>(last[value])].ends.push_back(static_cast<int32_t>(value));
    }
}

void Program::verify() const {
    const auto require = [](bool holds, size_t step, const char* what) {
        if (!holds) fail(ErrorKind::Error, "graph: step {} {}", step, what);
    };
    int64_t last_fact = -1;  // the latest value that a term speaks of, or one before it
    std::vector<int64_t> last_facts;
    for (size_t k = 0; k < sizes.size(); ++k) {
        const SizeTerm& term = sizes[k];
        const auto is_before = [](int64_t number, size_t end) { return number >= 0 && static_cast<size_t>(number) < end; };
        require(!term.is_fact() || is_before(term.a, steps.size()), steps.size(), "has a fact about a value that is not there");
        require(term.op != SizeTerm::Op::Shared || is_before(term.b, steps.size()), steps.size(), "has a fact about a value that is not there");
        require(!term.is_computed() || (is_before(term.a, k) && is_before(term.b, k)), steps.size(), "computes with a number that is not there yet");
        if (term.is_fact()) last_fact = std::max({last_fact, term.a, term.op == SizeTerm::Op::Shared ? term.b : -1});
        last_facts.push_back(last_fact);
    }
    for (size_t i = 0; i < steps.size() && !sizes.empty(); ++i) {
        for (const SizeUse& use : steps[i].sizes) {
            require(use.term >= 0 && static_cast<size_t>(use.term) < sizes.size() && last_facts[static_cast<size_t>(use.term)] < static_cast<int64_t>(i), i,
                    "uses a size that is not known yet");
            require(steps[i].value ? use.place == SizeUse::kValue : use.place >= 0 && use.place < steps[i].attributes->used, i, "has no such attribute");
        }
    }
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step& step = steps[i];
        for (const int32_t value : step.inputs) require(value >= 0 && static_cast<size_t>(value) < i, i, "reads a value that is not there yet");
        require(step.extra <= step.inputs.size() && (step.extra == 0 || !step.epilogues.empty()), i, "has more inputs for epilogues than inputs");
        for (size_t k = 0; k < step.epilogues.size(); ++k) {
            for (const int32_t operand : step.epilogues[k].operands) {
                require(operand >= 0 ? static_cast<size_t>(operand) < step.inputs.size() : static_cast<size_t>(~operand) <= k, i,
                        "has an epilogue that reads what is not there yet");
            }
            const auto& operands = step.epilogues[k].operands;  // a product's are written over its result, one after another
            const bool chained = !operands.empty() && operands[0] == ~static_cast<int32_t>(k) &&
                                 std::count_if(operands.begin(), operands.end(), [](int32_t operand) { return operand < 0; }) == 1;
            require(step.kind != NodeKind::Product || chained, i, "is a product with an epilogue that does not work on what the one before made");
        }
        const bool leaf = step.kind == NodeKind::Input || step.kind == NodeKind::External || step.kind == NodeKind::Constant;
        require(!leaf || (step.inputs.empty() && step.epilogues.empty()), i, "has operands and is none that computes");
        require((step.kind == NodeKind::External || step.kind == NodeKind::Constant) == static_cast<bool>(step.value), i,
                "lacks its value, or has one too many");
        require(!step.in_place || (!step.inputs.empty() && step.epilogues.empty()), i, "writes over nothing");
        for (const int32_t value : step.inputs) {
            const ValueKind kind = steps[static_cast<size_t>(value)].value_kind();
            require(kind == ValueKind::Tensor || (kind == ValueKind::Sequence && step.op == OpCode::Result), i, "reads a value of another kind");
        }
        if (step.op == OpCode::Result) {
            require(step.inputs.size() == 1 && step.epilogues.empty() && step.attributes->count == 1, i, "is a result of nothing");
            const Step& of = steps[static_cast<size_t>(step.inputs[0])];
            const size_t first = of.kind == NodeKind::Control ? 0 : 1, end = of.kind == NodeKind::Control ? of.regions.back()->outputs.size() : 2;
            require(step.result() >= first && step.result() < end, i, "is a result that there is not");
        }
        require(step.regions.size() == (step.value_kind() == ValueKind::Sequence ? 2u : 0u), i, "runs too many programs, or too few");
        for (const auto& region : step.regions) {
            require(region->inputs.size() == step.inputs.size() && region->sizes.empty(), i, "has a region that takes something else");
            region->verify();
        }
    }
    const auto is_input = [](const Step& step) { return step.kind == NodeKind::Input; };
    require(static_cast<size_t>(std::count_if(steps.begin(), steps.end(), is_input)) == inputs.size(), steps.size(), "is an input that is not given");
    for (const int32_t value : inputs) {
        require(value >= 0 && static_cast<size_t>(value) < steps.size() && steps[static_cast<size_t>(value)].kind == NodeKind::Input, steps.size(),
                "that is an input is none");
    }
    for (const int32_t value : outputs) {
        require(value >= 0 && static_cast<size_t>(value) < steps.size() && steps[static_cast<size_t>(value)].value_kind() == ValueKind::Tensor, steps.size(),
                "that goes out is no tensor that is there");
    }
}

}  // namespace clikart
