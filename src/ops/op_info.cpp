#include "ops/op_info.h"

#include <array>

#include "ops/op_calls.h"
#include "ops/rules.h"

namespace clikart {
namespace {

constexpr OpInfo rows[] = {
#include "ops/op_table.inc"
};

constexpr auto by_code = [] {
    std::array<const OpInfo*, kOpCodes> table{};
    for (const OpInfo& row : rows) table[static_cast<size_t>(row.code)] = &row;
    return table;
}();

}  // namespace

const OpInfo& op_info(OpCode code) {
    const auto index = static_cast<size_t>(code);
    if (index >= by_code.size() || !by_code[index]) fail(ErrorKind::Value, "{} is not the code of an operator", static_cast<int>(code));
    return *by_code[index];
}

}  // namespace clikart
