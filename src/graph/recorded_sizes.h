// The sizes that a function works with while it is captured, as terms that follow the inputs' sizes.
#pragma once

#include <array>
#include <map>

#include "graph/sizes.h"

namespace clikart {

/// Belongs to one capture, and to its thread.
class RecordedSizes {
public:
    /// The number that stands for a term in arguments; see is_size_code().
    static int64_t code_of(int32_t term) noexcept;
    /// The term of a number that is a code, or of a plain one.  Throws ValueError for a code that was not given out.
    int32_t term_of(int64_t code_or_number);
    /// What it comes to now.
    int64_t number_of(int32_t term) const noexcept { return numbers_[static_cast<size_t>(term)]; }
    bool knows(int64_t code) const noexcept;

    /// A fact about a tensor that stands for a value, in one of its dimensions or in relation to another one, and what it is now.
    int32_t add_fact(SizeTerm::Op op, Tensor& value, int64_t dim, int64_t number);
    int32_t add_fact(SizeTerm::Op op, Tensor& value, Tensor& other, int64_t number);
    /// Throws as compute().
    int32_t add_computed(SizeTerm::Op op, int32_t a, int32_t b);
    /// From now on the graph counts on the term being what it is.
    void require(int32_t term, Ref<Origin> place);
    /// A weak number that follows the term.
    Ref<Tensor> make_number(int32_t term);
    /// The term that a number follows; -1: none.
    int32_t followed_by(const Tensor& number) const;

    // What came of it.  Values of facts are numbers of `values`.
    std::vector<SizeTerm> terms;
    std::vector<Ref<Tensor>> values;
    std::vector<Condition> conditions;

private:
    int32_t add(const SizeTerm& term, int64_t number);
    int32_t number_of_value(Tensor& value);

    std::vector<int64_t> numbers_;
    std::map<std::array<int64_t, 3>, int32_t> known_;
    std::unordered_map<const Tensor*, int32_t> value_numbers_;
    std::vector<bool> required_;
    std::unordered_map<const Tensor*, std::pair<Ref<Tensor>, int32_t>> made_;
};

}  // namespace clikart
