#include "graph/passes/common.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace clikart::passes {
namespace {

bool same_attributes(const Attributes& a, const Attributes& b) {
    const auto same_item = [](const Attributes::Item& x, const Attributes::Item& y) { return x.offset == y.offset && x.length == y.length; };
    return a.count == b.count && a.used == b.used && std::equal(a.items, a.items + a.count, b.items, same_item) &&
           std::equal(a.values, a.values + a.used, b.values);
}

bool same_number(const Tensor& a, const Tensor& b) {
    return a.number && b.number && a.weak == b.weak && a.dtype() == b.dtype() && std::memcmp(a.data(), b.data(), static_cast<size_t>(size_of(a.dtype()))) == 0;
}

bool same(const Step& a, const Step& b) {
    if (a.op != b.op || a.kind != b.kind || a.dtype != b.dtype || !(a.shape == b.shape) || a.sizes != b.sizes) return false;
    if (a.kind == NodeKind::Constant) return same_number(*a.value, *b.value);
    return a.inputs == b.inputs && same_attributes(*a.attributes, *b.attributes);
}

size_t hash_of(const Step& step) {
    size_t h = static_cast<size_t>(step.op) * 31 + static_cast<size_t>(step.dtype);
    const auto mix = [&](uint64_t v) { h = (h ^ v) * 0x9E3779B97F4A7C15u; };
    if (step.kind == NodeKind::Constant) {
        uint64_t bits = 0;
        std::memcpy(&bits, step.value->data(), std::min<size_t>(sizeof bits, static_cast<size_t>(size_of(step.dtype))));
        mix(bits);
    }
    for (const int32_t value : step.inputs) mix(static_cast<uint64_t>(value));
    for (int i = 0; i < step.attributes->used; ++i) mix(static_cast<uint64_t>(step.attributes->values[i]));
    return h;
}

}  // namespace

void merge_common(Program& program) {
    std::vector<bool> escapes = program.find_escaping(), written = program.find_written();
    for (size_t i = 0; i < program.steps.size(); ++i) {  // both results of a call are of one step
        if (program.steps[i].op != OpCode::Result || !(escapes[i] || written[i])) continue;
        escapes[static_cast<size_t>(program.steps[i].inputs[0])] = true;
    }
    std::vector<int32_t> merged(program.steps.size());
    std::vector<bool> gone(program.steps.size(), false);
    std::unordered_multimap<size_t, int32_t> known;
    for (size_t i = 0; i < program.steps.size(); ++i) {
        Step& step = program.steps[i];
        merged[i] = static_cast<int32_t>(i);
        for (int32_t& value : step.inputs) value = merged[static_cast<size_t>(value)];
        const bool stays = written[i] || reads_any(step, written) || escapes[i] || !step.epilogues.empty() || step.kind == NodeKind::Input ||
                           step.kind == NodeKind::External || step.kind == NodeKind::Random || step.value_kind() == ValueKind::Sequence;
        if (stays) continue;
        const size_t hash = hash_of(step);
        const auto [first, last] = known.equal_range(hash);
        const auto it = std::find_if(first, last, [&](const auto& entry) { return same(program.steps[static_cast<size_t>(entry.second)], step); });
        if (it == last) {
            known.emplace(hash, merged[i]);
            continue;
        }
        merged[i] = it->second;
        gone[i] = true;
    }
    program.remove(gone);
}

}  // namespace clikart::passes
