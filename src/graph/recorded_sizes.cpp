#include "graph/recorded_sizes.h"

#include "ops/recorder.h"

namespace clikart {

int64_t RecordedSizes::code_of(int32_t term) noexcept {
    return kFirstSizeCode + term;
}

bool RecordedSizes::knows(int64_t code) const noexcept {
    return is_size_code(code) && static_cast<size_t>(code - kFirstSizeCode) < terms.size();
}

int32_t RecordedSizes::term_of(int64_t code_or_number) {
    if (!is_size_code(code_or_number)) return add({SizeTerm::Op::Number, code_or_number, 0}, code_or_number);
    if (!knows(code_or_number)) fail(ErrorKind::Value, "capture: {} is the code of no size", code_or_number);
    return static_cast<int32_t>(code_or_number - kFirstSizeCode);
}

int32_t RecordedSizes::add(const SizeTerm& term, int64_t number) {
    const auto [it, fresh] = known_.emplace(std::array{static_cast<int64_t>(term.op), term.a, term.b}, static_cast<int32_t>(terms.size()));
    if (!fresh) return it->second;
    if (terms.size() == static_cast<size_t>(kSizeCodes)) fail(ErrorKind::Value, "capture: more than {} numbers come from sizes", kSizeCodes);
    terms.push_back(term);
    numbers_.push_back(number);
    required_.push_back(false);
    return it->second;
}

int32_t RecordedSizes::number_of_value(Tensor& value) {
    const auto [it, fresh] = value_numbers_.emplace(&value, static_cast<int32_t>(values.size()));
    if (fresh) values.push_back(Ref<Tensor>::share(&value));
    return it->second;
}

int32_t RecordedSizes::add_fact(SizeTerm::Op op, Tensor& value, int64_t dim, int64_t number) {
    return add({op, number_of_value(value), dim}, number);
}

int32_t RecordedSizes::add_fact(SizeTerm::Op op, Tensor& value, Tensor& other, int64_t number) {
    return add({op, number_of_value(value), number_of_value(other)}, number);
}

int32_t RecordedSizes::add_computed(SizeTerm::Op op, int32_t a, int32_t b) {
    return add({op, a, b}, compute(op, number_of(a), number_of(b)));
}

void RecordedSizes::require(int32_t term, Ref<Origin> place) {
    if (required_[static_cast<size_t>(term)] || terms[static_cast<size_t>(term)].op == SizeTerm::Op::Number) return;
    required_[static_cast<size_t>(term)] = true;
    conditions.push_back({term, number_of(term), std::move(place)});
}

Ref<Tensor> RecordedSizes::make_number(int32_t term) {
    const Ref<Tensor> number = scalar(number_of(term));
    made_.emplace(number.get(), std::pair(number, term));
    return number;
}

int32_t RecordedSizes::followed_by(const Tensor& number) const {
    const auto it = made_.find(&number);
    return it == made_.end() ? -1 : it->second.second;
}

}  // namespace clikart
