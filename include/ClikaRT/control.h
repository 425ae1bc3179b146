// Branches and loops that depend on values, and may be parts of a graph.
#pragma once

#include <ClikaRT/graph.h>
#include <ClikaRT/ops.h>

#include <functional>

namespace ClikaRT {
inline namespace v1 {

namespace detail {

/// A region of the calling thread's capture.
class Region {
public:
    /// What `function` does, recorded as a program of its own; with parameters in the place of what it is given.
    Region(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& function, const std::vector<Tensor>& given, bool parameters) {
        check(clikart_region_begin());
        try {
            std::vector<Tensor> values;
            for (const Tensor& value : given) values.push_back(parameters ? Tensor::adopt(clikart_region_input(value.handle())) : value);
            const std::vector<Tensor> results = function(values);
            const auto list = handles(results);
            size_ = list.size();
            open_ = false;
            handle_ = check(clikart_region_end(list.data(), list.size()));
        } catch (...) {
            if (open_) clikart_region_cancel();
            throw;
        }
    }
    Region(const Region&) = delete;
    Region& operator=(const Region&) = delete;
    ~Region() { clikart_region_release(handle_); }
    const clikart_region* handle() const noexcept { return handle_; }
    std::size_t size() const noexcept { return size_; }

private:
    clikart_region* handle_ = nullptr;
    std::size_t size_ = 0;
    bool open_ = true;
};

inline std::vector<Tensor> adopt_all(const std::vector<clikart_tensor*>& handles) {
    std::vector<Tensor> tensors;
    for (clikart_tensor* const handle : handles) tensors.push_back(Tensor::adopt(handle));
    return tensors;
}

/// What record() returns where a graph is recorded, else call(); also where the graph is given up, because it cannot have that.
inline std::vector<Tensor> recorded(const std::function<std::vector<Tensor>()>& record, const std::function<std::vector<Tensor>()>& call) {
    if (!clikart_capturing() || *check(clikart_capture_obstacle())) return call();
    if (clikart_get_mode() == CLIKART_MODE_CAPTURE) return record();
    try {
        return record();
    } catch (const std::exception& error) {
        check(clikart_capture_give_up(error.what()));
    }
    return call();
}

/// As they come out of a graph: bits of what is computed of them may depend on how they lie.
inline std::vector<Tensor> dense(std::vector<Tensor> values) {
    for (Tensor& value : values) {
        if (!clikart_tensor_is_contiguous(value.handle())) value = ops::copy(value);
    }
    return values;
}

/// With memory of their own.
inline std::vector<Tensor> copies(std::vector<Tensor> values) {
    for (Tensor& value : values) value = ops::copy(value);
    return values;
}

inline bool truth_of(const Tensor& condition) {
    return condition.item_as_vec<bool>().at(0);
}

}  // namespace detail

/// What one of two functions without arguments returns, as the value of `condition` says: bool, without dimensions.  While a graph is
/// recorded both become parts of it, and each run computes one of them; nobody waits for the value.  They then write over no memory, draw
/// no random numbers, and return tensors of the same dtypes and shapes.  Elsewhere the condition is waited for.
inline std::vector<Tensor> cond(const Tensor& condition, const std::function<std::vector<Tensor>()>& on_true,
                                const std::function<std::vector<Tensor>()>& on_false) {
    const auto record = [&] {
        const detail::Region first([&](const std::vector<Tensor>&) { return on_true(); }, {}, false);
        const detail::Region second([&](const std::vector<Tensor>&) { return on_false(); }, {}, false);
        std::vector<clikart_tensor*> outputs(second.size());
        detail::check(clikart_cond(condition.handle(), first.handle(), second.handle(), outputs.data(), outputs.size()));
        return detail::adopt_all(outputs);
    };
    return detail::recorded(record, [&] { return detail::copies(detail::truth_of(condition) ? on_true() : on_false()); });
}

/// Calls `body` with what it returned before, as long as `condition` of that is true; in a graph as cond() does.  What is carried keeps its
/// dtypes and shapes.
inline std::vector<Tensor> while_loop(const std::function<Tensor(const std::vector<Tensor>&)>& condition,
                                      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body, std::vector<Tensor> carried) {
    const auto call = [&] {
        carried = detail::dense(std::move(carried));
        while (detail::truth_of(condition(carried))) carried = detail::dense(body(carried));
        return detail::copies(std::move(carried));
    };
    const auto record = [&] {
        const detail::Region test([&](const std::vector<Tensor>& values) { return std::vector<Tensor>{condition(values)}; }, carried, true);
        const detail::Region step(body, carried, true);
        const auto list = detail::handles(carried);
        std::vector<clikart_tensor*> outputs(carried.size());
        detail::check(clikart_while_loop(list.data(), test.handle(), step.handle(), outputs.data(), outputs.size()));
        return detail::adopt_all(outputs);
    };
    return detail::recorded(record, call);
}

}  // namespace v1
}  // namespace ClikaRT
