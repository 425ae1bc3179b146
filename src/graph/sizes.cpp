#include "graph/sizes.h"

#include "base/error.h"

namespace clikart {

std::span<const char* const> size_term_names() noexcept {
    static constexpr const char* kNames[] = {"number", "size", "stride", "dense", "shared", "add", "sub", "mul", "floordiv", "mod", "equal", "less"};
    return kNames;
}

int64_t compute(SizeTerm::Op op, int64_t a, int64_t b) {
    int64_t result = 0;
    bool fits = true;
    switch (op) {
        case SizeTerm::Op::Add: fits = !__builtin_add_overflow(a, b, &result); break;
        case SizeTerm::Op::Sub: fits = !__builtin_sub_overflow(a, b, &result); break;
        case SizeTerm::Op::Mul: fits = !__builtin_mul_overflow(a, b, &result); break;
        case SizeTerm::Op::FloorDiv:
        case SizeTerm::Op::Mod: {
            if (b == 0) fail(ErrorKind::Value, "sizes: {} is divided by zero", a);
            fits = !(a == INT64_MIN && b == -1);
            if (!fits) break;
            const int64_t rest = a % b, below = rest != 0 && (rest < 0) != (b < 0);  // the remainder has the divisor's sign
            result = op == SizeTerm::Op::Mod ? rest + (below ? b : 0) : a / b - below;
            break;
        }
        case SizeTerm::Op::Equal: return a == b;
        case SizeTerm::Op::Less: return a < b;
        default: fail(ErrorKind::Error, "sizes: term {} is not computed of others", static_cast<int>(op));
    }
    if (!fits) fail(ErrorKind::Value, "sizes: what is computed of {} and {} does not fit 64 bits", a, b);
    return result;
}

SizeValues::SizeValues(const std::vector<SizeTerm>& terms) : terms_(terms) {
    for (const SizeTerm& term : terms) {
        if (!term.is_fact()) continue;
        values_.emplace(static_cast<int32_t>(term.a), nullptr);
        if (term.op == SizeTerm::Op::Shared) values_.emplace(static_cast<int32_t>(term.b), nullptr);
    }
}

void SizeValues::note(int32_t value, Tensor& tensor) {
    if (const auto it = values_.find(value); it != values_.end()) it->second = Ref<Tensor>::share(&tensor);
}

int64_t SizeValues::of(int32_t term) {
    const auto value = [&](int64_t number) -> const Tensor& { return *values_.at(static_cast<int32_t>(number)); };
    while (numbers_.size() <= static_cast<size_t>(term)) {
        const SizeTerm& t = terms_[numbers_.size()];
        switch (t.op) {
            case SizeTerm::Op::Number: numbers_.push_back(t.a); break;
            case SizeTerm::Op::Size: numbers_.push_back(value(t.a).shape()[static_cast<int>(t.b)]); break;
            case SizeTerm::Op::Stride: numbers_.push_back(value(t.a).strides()[static_cast<int>(t.b)]); break;
            case SizeTerm::Op::Dense: numbers_.push_back(value(t.a).is_contiguous()); break;
            case SizeTerm::Op::Shared: numbers_.push_back(&value(t.a).storage() == &value(t.b).storage()); break;
            default: numbers_.push_back(compute(t.op, numbers_[static_cast<size_t>(t.a)], numbers_[static_cast<size_t>(t.b)]));
        }
    }
    return numbers_[static_cast<size_t>(term)];
}

namespace {

constexpr int kDeepest = 6;  // of terms in terms that are written out

std::string written(const std::vector<SizeTerm>& terms, int64_t term, const std::function<std::string(int64_t)>& value, int depth) {
    const SizeTerm& t = terms[static_cast<size_t>(term)];
    const auto both = [&](std::string_view between) {
        if (depth == kDeepest) return std::string("...");
        return fmt::format("{} {} {}", written(terms, t.a, value, depth + 1), between, written(terms, t.b, value, depth + 1));
    };
    switch (t.op) {
        case SizeTerm::Op::Number: return std::to_string(t.a);
        case SizeTerm::Op::Size: return fmt::format("{}.shape[{}]", value(t.a), t.b);
        case SizeTerm::Op::Stride: return fmt::format("{}.stride({})", value(t.a), t.b);
        case SizeTerm::Op::Dense: return fmt::format("{}.is_contiguous()", value(t.a));
        case SizeTerm::Op::Shared: return fmt::format("({} shares the memory of {})", value(t.b), value(t.a));
        case SizeTerm::Op::Add: return fmt::format("({})", both("+"));
        case SizeTerm::Op::Sub: return fmt::format("({})", both("-"));
        case SizeTerm::Op::Mul: return both("*");
        case SizeTerm::Op::FloorDiv: return fmt::format("({})", both("//"));
        case SizeTerm::Op::Mod: return fmt::format("({})", both("%"));
        case SizeTerm::Op::Equal: return fmt::format("({})", both("=="));
        case SizeTerm::Op::Less: return fmt::format("({})", both("<"));
    }
    return "?";
}

}  // namespace

std::string text_of(const std::vector<SizeTerm>& terms, const Condition& condition, const std::function<std::string(int64_t)>& value) {
    const SizeTerm& t = terms[static_cast<size_t>(condition.term)];
    const auto text = [&](int64_t term) { return written(terms, term, value, 0); };
    const auto is_number = [&](int64_t term) { return terms[static_cast<size_t>(term)].op == SizeTerm::Op::Number; };
    const bool holds = condition.value != 0;
    switch (t.op) {
        case SizeTerm::Op::Dense:
        case SizeTerm::Op::Shared: return (holds ? "" : "not ") + text(condition.term);
        case SizeTerm::Op::Equal: return fmt::format("{} {} {}", text(t.a), holds ? "==" : "!=", text(t.b));
        case SizeTerm::Op::Less:
            if (is_number(t.a)) return fmt::format("{} {} {}", text(t.b), holds ? ">" : "<=", text(t.a));
            return fmt::format("{} {} {}", text(t.a), holds ? "<" : ">=", text(t.b));
        default: return fmt::format("{} == {}", text(condition.term), condition.value);
    }
}

}  // namespace clikart
