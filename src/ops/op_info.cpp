#include "ops/op_info.h"

#include <array>
#include <unordered_map>

#include "ops/op_calls.h"
#include "ops/rules.h"

namespace clikart {
namespace {

constexpr OpInfo rows[] = {
#include "ops/op_table.inc"
};

/// Steps of graphs that run other programs, and that nobody calls as operators; graph/control.h has what they do.
constexpr OpInfo control[] = {
    {OpCode::Cond, "cond", NodeKind::Control, nullptr, nullptr, nullptr, 0, 0, false, false, false, "", ""},
    {OpCode::WhileLoop, "while_loop", NodeKind::Control, nullptr, nullptr, nullptr, 0, 0, false, false, false, "", ""},
};

constexpr auto by_code = [] {
    std::array<const OpInfo*, kOpCodes> table{};
    for (const OpInfo& row : rows) table[static_cast<size_t>(row.code)] = &row;
    for (const OpInfo& row : control) table[static_cast<size_t>(row.code)] = &row;
    return table;
}();

}  // namespace

const OpInfo* find_op(std::string_view name) {
    static const auto& by_name = *new std::unordered_map<std::string_view, const OpInfo*>([] {
        std::unordered_map<std::string_view, const OpInfo*> names;
        for (const OpInfo& row : rows) names.emplace(row.name, &row);
        return names;
    }());
    const auto it = by_name.find(name);
    return it == by_name.end() ? nullptr : it->second;
}

const OpInfo& op_info(OpCode code) {
    const auto index = static_cast<size_t>(code);
    if (index >= by_code.size() || !by_code[index]) fail(ErrorKind::Value, "{} is not the code of an operator", static_cast<int>(code));
    return *by_code[index];
}

}  // namespace clikart
