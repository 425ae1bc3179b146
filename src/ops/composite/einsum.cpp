#include "ops/composite/einsum.h"

#include <algorithm>
#include <string>
#include <vector>

#include "ops/op_calls.h"
#include "ops/recorder.h"
#include "ops/settle.h"

namespace clikart {
namespace {

/// A dimension's name.  Letters are themselves; what an ellipsis stands for is numbered from the right, from kEllipsis on.
using Label = int;
constexpr Label kEllipsis = 256;
using Labels = std::vector<Label>;

bool contains(const Labels& labels, Label label) {
    return std::find(labels.begin(), labels.end(), label) != labels.end();
}

/// A tensor whose dimensions have names, each only once.
struct Named {
    Ref<Tensor> tensor;
    Labels labels;

    int64_t size(Label label) const { return tensor->shape()[static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin())]; }
};

/// One call: the equation as read, and what is said when it cannot be.
class Einsum {
public:
    Einsum(std::string_view equation, std::span<Tensor* const> operands) : equation_(equation), operands_(operands) {}

    Ref<Tensor> run() {
        check_operands();
        for (const Tensor* operand : operands_) note_size_asked(*operand);  // sizes decide in what order it multiplies
        read();
        find_sizes();
        for (size_t i = 0; i < operands_.size(); ++i) named_.push_back(named(i));
        for (size_t i = 0; i < named_.size(); ++i) sum_own(i);
        Named result = std::move(named_[0]);
        for (size_t i = 1; i < named_.size(); ++i) result = contract(result, named_[i], i);
        return in_order(result, output_);
    }

private:
    template <class... Args>
    [[noreturn]] void refuse(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) const {
        std::string shapes;
        for (const Tensor* t : operands_) shapes += (shapes.empty() ? "" : ", ") + to_string(t->shape());
        fail(kind, "einsum: {}; equation '{}', shapes {}", fmt::format(format, std::forward<Args>(args)...), equation_, shapes);
    }
    static std::string text_of(Label label) { return label >= kEllipsis ? "..." : std::string(1, static_cast<char>(label)); }

    void check_operands() const {
        if (operands_.empty()) fail(ErrorKind::Value, "einsum: no operands for '{}'", equation_);
        require_sizes(operands_, "einsum");
        for (const Tensor* t : operands_) {
            if (t->weak) refuse(ErrorKind::Type, "needs tensors, got a number");
            if (t->dtype() != operands_[0]->dtype())
                refuse(ErrorKind::Type, "needs one dtype, got {} and {}", name_of(operands_[0]->dtype()), name_of(t->dtype()));
        }
    }

    /// The names of one term; an ellipsis stands for `hidden` dimensions.
    Labels read_term(std::string_view term, int hidden) const {
        Labels labels;
        bool seen = false;
        for (size_t i = 0; i < term.size(); ++i) {
            const char c = term[i];
            if (c == ' ') continue;
            if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
                labels.push_back(c);
            } else if (term.substr(i, 3) == "..." && !seen) {
                for (int h = hidden - 1; h >= 0; --h) labels.push_back(kEllipsis + h);
                seen = true;
                i += 2;
            } else {
                if (c == '.') refuse(ErrorKind::Value, "an ellipsis is three points, once in a term");
                refuse(ErrorKind::Value, "the character with code {} is no label", static_cast<int>(static_cast<unsigned char>(c)));
            }
        }
        return labels;
    }

    void read() {
        std::string_view inputs = equation_;
        const size_t arrow = equation_.find("->");
        if (arrow != equation_.npos) inputs = equation_.substr(0, arrow);
        std::vector<std::string_view> terms;
        for (size_t begin = 0;;) {
            const size_t end = inputs.find(',', begin);
            terms.push_back(inputs.substr(begin, end == inputs.npos ? end : end - begin));
            if (end == inputs.npos) break;
            begin = end + 1;
        }
        if (terms.size() != operands_.size()) refuse(ErrorKind::Value, "{} terms for {} operands", terms.size(), operands_.size());
        int hidden = 0;  // dimensions of the longest ellipsis
        for (size_t i = 0; i < terms.size(); ++i) {
            const int rank = operands_[i]->rank(), spelt = static_cast<int>(read_term(terms[i], 0).size());
            const bool open = terms[i].find('.') != terms[i].npos;
            if (open ? spelt > rank : spelt != rank) refuse(ErrorKind::Value, "operand {} has {} dimensions, its term names {}", i, rank, spelt);
            if (open) hidden = std::max(hidden, rank - spelt);
            inputs_.push_back(read_term(terms[i], rank - spelt));
        }
        if (arrow == equation_.npos) {
            for (int h = hidden - 1; h >= 0; --h) output_.push_back(kEllipsis + h);
            for (Label label = 0; label < kEllipsis; ++label) {
                int64_t uses = 0;
                for (const Labels& labels : inputs_) uses += std::count(labels.begin(), labels.end(), label);
                if (uses == 1) output_.push_back(label);
            }
            return;
        }
        output_ = read_term(equation_.substr(arrow + 2), hidden);
        for (const Label label : output_) {
            if (std::count(output_.begin(), output_.end(), label) > 1) refuse(ErrorKind::Value, "the result names '{}' twice", text_of(label));
            if (std::none_of(inputs_.begin(), inputs_.end(), [&](const Labels& labels) { return contains(labels, label); })) {
                refuse(ErrorKind::Value, "the result names '{}', which no operand has", text_of(label));
            }
        }
    }

    /// Equal names have equal sizes, or 1.
    void find_sizes() {
        sizes_.assign(kEllipsis + kMaxRank, 1);
        for (size_t i = 0; i < inputs_.size(); ++i) {
            for (size_t d = 0; d < inputs_[i].size(); ++d) {
                const Label label = inputs_[i][d];
                int64_t &known = sizes_[static_cast<size_t>(label)], own = operands_[i]->shape()[static_cast<int>(d)];
                if (own == 1) continue;
                if (known != 1 && known != own) refuse(ErrorKind::Value, "'{}' has sizes {} and {}", text_of(label), known, own);
                known = own;
            }
        }
        if (static_cast<int>(output_.size()) > kMaxRank) refuse(ErrorKind::Value, "the result would have {} dimensions", output_.size());
    }

    /// An operand with every name once: what is named twice becomes its diagonal.  Sizes of 1 where others have more are gone.
    Named named(size_t i) const {
        Named n{Ref<Tensor>::share(operands_[i]), inputs_[i]};
        for (size_t d = 0; d < n.labels.size();) {
            const auto again = std::find(n.labels.begin() + static_cast<int64_t>(d) + 1, n.labels.end(), n.labels[d]);
            if (again == n.labels.end()) {
                ++d;
                continue;
            }
            take_diagonal(n, static_cast<int>(d), static_cast<int>(again - n.labels.begin()));
        }
        Dims shape;
        Labels labels;
        for (const Label label : n.labels) {
            if (n.size(label) == 1 && sizes_[static_cast<size_t>(label)] != 1) continue;
            shape.push_back(n.size(label));
            labels.push_back(label);
        }
        if (labels.size() != n.labels.size()) n = {op::reshape(*n.tensor, shape), labels};
        return n;
    }

    /// Dimensions d and e, of one name, become the last one.  It is every (size + 1)th element of both in one.
    void take_diagonal(Named& n, int d, int e) const {
        const Dims& shape = n.tensor->shape();
        const int64_t size = shape[d];
        if (shape[e] != size) refuse(ErrorKind::Value, "'{}' has sizes {} and {} in one operand", text_of(n.labels[static_cast<size_t>(d)]), size, shape[e]);
        Dims order, both;
        Labels labels;
        for (int i = 0; i < shape.rank(); ++i) {
            if (i == d || i == e) continue;
            order.push_back(i);
            both.push_back(shape[i]);
            labels.push_back(n.labels[static_cast<size_t>(i)]);
        }
        order.push_back(d), order.push_back(e);
        both.push_back(size * size);
        labels.push_back(n.labels[static_cast<size_t>(d)]);
        const Ref<Tensor> square = op::reshape(*op::permute(*n.tensor, order), both);
        n = {op::slice(*square, -1, std::nullopt, std::nullopt, size + 1), labels};
    }

    bool used_after(Label label, size_t i) const {
        if (contains(output_, label)) return true;
        for (size_t later = i + 1; later < named_.size(); ++later) {
            if (contains(named_[later].labels, label)) return true;
        }
        return false;
    }

    void require_numbers() const {
        if (operands_[0]->dtype() == DType::Bool) refuse(ErrorKind::Type, "bools are neither added nor multiplied");
    }

    /// Sums over what only operand i names.
    void sum_own(size_t i) {
        Named& n = named_[i];
        Dims dims;
        Labels kept;
        for (size_t d = 0; d < n.labels.size(); ++d) {
            bool elsewhere = contains(output_, n.labels[d]);
            for (size_t other = 0; other < named_.size(); ++other) elsewhere |= other != i && contains(named_[other].labels, n.labels[d]);
            if (elsewhere) {
                kept.push_back(n.labels[d]);
            } else {
                dims.push_back(static_cast<int64_t>(d));
            }
        }
        if (dims.rank() == 0) return;
        require_numbers();
        Ref<Tensor> sum = op::sum(*n.tensor, dims, false);
        if (sum->dtype() != n.tensor->dtype()) sum = op::cast(*sum, n.tensor->dtype());  // integers are summed in 64 bits
        n = {std::move(sum), kept};
    }

    static Ref<Tensor> in_order(const Named& n, const Labels& labels) {
        Dims order;
        bool changed = false;
        for (const Label label : labels) {
            const auto d = std::find(n.labels.begin(), n.labels.end(), label) - n.labels.begin();
            changed |= d != order.rank();
            order.push_back(d);
        }
        return changed ? op::permute(*n.tensor, order) : n.tensor;
    }

    /// The dimensions of the groups in this order; those of each group but the first become one.
    static Ref<Tensor> grouped(const Named& n, const Labels& single, const Labels& second, const Labels& third) {
        Labels all = single;
        all.insert(all.end(), second.begin(), second.end());
        all.insert(all.end(), third.begin(), third.end());
        Dims shape;
        for (const Label label : single) shape.push_back(n.size(label));
        for (const Labels* group : {&second, &third}) {
            int64_t size = 1;
            for (const Label label : *group) size *= n.size(label);
            shape.push_back(size);
        }
        const Ref<Tensor> ordered = in_order(n, all);
        return ordered->shape() == shape ? ordered : op::reshape(*ordered, shape);
    }

    /// Both as stacks of matrices: names that both have and that are still wanted count the stack, those that only both have
    /// are the inner dimension.
    Named contract(const Named& a, const Named& b, size_t i) const {
        require_numbers();
        Labels stack, inner, left, right;
        for (const Label label : a.labels) (!contains(b.labels, label) ? left : used_after(label, i) ? stack : inner).push_back(label);
        for (const Label label : b.labels) {
            if (!contains(a.labels, label)) right.push_back(label);
        }
        Labels labels = stack;
        labels.insert(labels.end(), left.begin(), left.end());
        labels.insert(labels.end(), right.begin(), right.end());
        if (labels.size() > kMaxRank || stack.size() + 2 > kMaxRank) refuse(ErrorKind::Value, "a product on the way has {} dimensions", labels.size());
        const Ref<Tensor> x = grouped(a, stack, left, inner), y = grouped(b, stack, inner, right);
        const Ref<Tensor> product = inner.empty() ? op::mul(*x, *y) : op::matmul(*x, *y);
        Dims shape;
        for (const Label label : labels) shape.push_back(contains(a.labels, label) ? a.size(label) : b.size(label));
        return {product->shape() == shape ? product : op::reshape(*product, shape), labels};
    }

    const std::string_view equation_;
    const std::span<Tensor* const> operands_;
    std::vector<Labels> inputs_;
    Labels output_;
    std::vector<int64_t> sizes_;  // of every label
    std::vector<Named> named_;
};

}  // namespace

Ref<Tensor> einsum(std::string_view equation, std::span<Tensor* const> operands) {
    return made_of_parts("einsum", [&] { return Einsum(equation, operands).run(); });
}

}  // namespace clikart
