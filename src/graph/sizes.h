// Numbers that a program computes of its values' sizes: attributes and numbers of its calls that come from sizes, and what has to hold
// for it to be the right program.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/origin.h"
#include "core/tensor.h"

namespace clikart {

/// One such number: a fact about values, or what is computed of earlier terms.
struct SizeTerm {
    enum class Op : uint8_t { Number, Size, Stride, Dense, Shared, Add, Sub, Mul, FloorDiv, Mod, Equal, Less };
    Op op;
    int64_t a = 0;  // a Number itself; of a fact the value, else a term
    int64_t b = 0;  // of Size and Stride the dimension, of Shared another value, else a term
    bool operator==(const SizeTerm&) const = default;

    /// Whether it is known from values: their sizes, strides, whether they lie dense in memory, whether two share it.
    bool is_fact() const noexcept { return op >= Op::Size && op <= Op::Shared; }
    bool is_computed() const noexcept { return op >= Op::Add; }
    bool divides() const noexcept { return op == Op::FloorDiv || op == Op::Mod; }
};

/// The names of all operations, in their order; docs/graph_files.md has them.
std::span<const char* const> size_term_names() noexcept;

/// A term in the place of an attribute's number (Attributes::values), or of a constant's value: kValue.
struct SizeUse {
    static constexpr int32_t kValue = -1;
    int32_t place;
    int32_t term;
    bool operator==(const SizeUse&) const = default;
};

/// What a program counts on.
struct Condition {
    int32_t term;
    int64_t value;
    Ref<Origin> place;  // where that was decided; null where nobody told
};

/// Throws ValueError for a division by zero and for what does not fit 64 bits; division as Python does it.
int64_t compute(SizeTerm::Op op, int64_t a, int64_t b);

/// What terms come to in one run.
class SizeValues {
public:
    /// The terms outlive it.
    explicit SizeValues(const std::vector<SizeTerm>& terms);
    /// What a value of the run is; those that terms speak of are told before these are needed.
    void note(int32_t value, Tensor& tensor);
    /// The number of a term, and of all before it.  Throws as compute().
    int64_t of(int32_t term);

private:
    const std::vector<SizeTerm>& terms_;
    std::vector<int64_t> numbers_;                     // of the first terms, as far as they are computed
    std::unordered_map<int32_t, Ref<Tensor>> values_;  // that facts are about
};

/// A condition as a reader sees it, without its place; `value` names a value.
std::string text_of(const std::vector<SizeTerm>& terms, const Condition& condition, const std::function<std::string(int64_t)>& value);

}  // namespace clikart
