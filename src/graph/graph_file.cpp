#include "graph/graph_file.h"

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "exec/host_read.h"
#include "graph/capture.h"
#include "io/safetensors.h"
#include "ops/call.h"
#include "ops/call_site.h"
#include "ops/recorder.h"
#include "ops/settle.h"

namespace clikart {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 2;        // 1: without numbers that come from sizes, composites and regions
constexpr size_t kLongest = 32 << 20;  // bytes of a description: a step takes some 200
constexpr int kDeepest = 16;           // regions in regions
constexpr const char* kKey = "clikart.graph";

// ---- writing ---------------------------------------------------------------------------------------------------------

Json real(double value) {
    if (std::isfinite(value)) return value;
    return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";  // JSON has no numbers for these
}

Json attribute(char letter, const Attributes& all, int i) {
    if (!all.present(i)) return nullptr;
    switch (letter) {
        case 'l':
        case 'L': return std::vector<int64_t>(all.list(i), all.list(i) + all.length(i));
        case 'f':
        case 'F': return real(all.real(i));
        case 'd':
        case 'D': return all.integer(i) == 0 ? Json() : Json(name_of(static_cast<DType>(all.integer(i))));
        default: return all.integer(i);
    }
}

std::string hex(const Tensor& number) {
    std::string text;
    const auto* bytes = static_cast<const unsigned char*>(number.data());
    for (int64_t i = 0; i < size_of(number.dtype()); ++i) text += fmt::format("{:02x}", bytes[i]);
    return text;
}

/// `depth`: in how many regions it lies.
Json described(const Step& step, size_t number, const std::string& input_name, int depth = 0);

Json described(const Program& region, int depth) {
    if (depth > kDeepest) fail(ErrorKind::NotImplemented, "graph.save: more than {} branches and loops lie in each other, which a file cannot hold", kDeepest);
    Json steps = Json::array();
    for (size_t i = 0; i < region.steps.size(); ++i) steps.push_back(described(region.steps[i], i, "", depth));
    return {{"steps", std::move(steps)}, {"outputs", region.outputs}};
}

Json described(const Step& step, size_t number, const std::string& input_name, int depth) {
    if (step.kind == NodeKind::Input) {
        return {{"kind", "input"}, {"name", input_name}, {"dtype", name_of(step.dtype)}, {"shape", std::vector<int64_t>(step.shape.begin(), step.shape.end())}};
    }
    if (step.kind == NodeKind::External) return {{"kind", "external"}, {"tensor", std::to_string(number)}};
    if (step.kind == NodeKind::Constant) {
        Json constant{{"kind", "constant"}, {"dtype", name_of(step.dtype)}, {"bytes", hex(*step.value)}, {"weak", step.value->weak}};
        if (!step.sizes.empty()) constant["size"] = step.sizes[0].term;
        return constant;
    }
    if (step.op == OpCode::Result) return {{"kind", "result"}, {"of", step.inputs[0]}, {"which", step.result()}};
    const OpInfo& info = op_info(step.op);
    if (step.kind == NodeKind::Control) {
        Json control{{"kind", "control"}, {"op", info.name}, {"inputs", step.inputs}, {"regions", Json::array()}};
        for (const auto& region : step.regions) control["regions"].push_back(described(*region, depth + 1));
        if (step.place && step.place->text()) control["place"] = *step.place->text();
        return control;
    }
    if (step.generator) {
        fail(ErrorKind::NotImplemented, "graph.save: node {} ({}) draws from a generator of its own, which a file cannot hold", number, info.name);
    }
    Json call{{"kind", "call"}, {"op", info.name}, {"inputs", step.inputs}, {"attributes", Json::array()}};
    for (int i = 0; info.attributes[i]; ++i) call["attributes"].push_back(attribute(info.attributes[i], *step.attributes, i));
    for (const SizeUse& use : step.sizes) {
        int i = 0;  // the attribute, and the number in it
        while (use.place >= step.attributes->items[i].offset + std::max(step.attributes->items[i].length, 0)) ++i;
        call["sizes"].push_back({i, use.place - step.attributes->items[i].offset, use.term});
    }
    if (step.in_place) call["in_place"] = true;
    if (step.place && step.place->text()) call["place"] = *step.place->text();
    return call;
}

// ---- reading ---------------------------------------------------------------------------------------------------------

[[noreturn]] void malformed(const std::string& what) {
    fail(ErrorKind::Value, "graph.load: the description of the graph {}", what);
}

const Json& member(const Json& object, const char* name, Json::value_t type) {
    const auto it = object.is_object() ? object.find(name) : object.end();
    const bool natural = type == Json::value_t::number_integer && it != object.end() && it->is_number_integer();
    if (it == object.end() || !(it->type() == type || natural)) malformed(fmt::format("lacks '{}' where it should be, or has something else there", name));
    return *it;
}

std::string text_of(const Json& object, const char* name) {
    const auto& text = member(object, name, Json::value_t::string).get_ref<const std::string&>();
    if (text.find('\0') != std::string::npos) malformed(fmt::format("has a zero byte in '{}'", name));
    return text;
}

int64_t whole(const Json& value, const char* what) {
    if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX))
        malformed(fmt::format("has {} that is no whole number", what));
    return value.get<int64_t>();
}

DType dtype_of(const std::string& name) {
    const DType dtype = dtype_named(name);
    if (dtype == DType::Unspecified) fail(ErrorKind::Type, "graph.load: '{}' is no dtype that is known here", name.substr(0, 32));
    return dtype;
}

double real_of(const Json& value) {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return std::numeric_limits<double>::infinity();
    if (value == "-inf") return -std::numeric_limits<double>::infinity();
    malformed("has an attribute that is no number");
}

/// One attribute, which is what its letter says.
void add_attribute(Attributes& to, char letter, const Json& value, const OpInfo& info, size_t n_inputs) {
    const bool optional = letter == 'I' || letter == 'F' || letter == 'L';
    if (value.is_null() && optional) return to.add_optional(static_cast<const int64_t*>(nullptr));
    const auto checked = [&](int64_t number, bool fits) {
        if (!fits) malformed(fmt::format("has an attribute of {} that is out of range", info.name));
        to.add(number);
    };
    switch (letter) {
        case 'l':
        case 'L': {
            std::vector<int64_t> list;
            if (!value.is_array()) malformed(fmt::format("has an attribute of {} that is no list", info.name));
            for (const Json& entry : value) list.push_back(whole(entry, "an attribute"));
            return to.add_list(info.name, "an attribute", list.data(), list.size(), Attributes::kMaxValues);
        }
        case 'f':
        case 'F': return to.add(real_of(value));
        case 'd':
        case 'D':
            if (value.is_null() && letter == 'D') return to.add(int64_t{0});
            if (!value.is_string()) malformed(fmt::format("has an attribute of {} that is no dtype", info.name));
            return to.add(static_cast<int64_t>(dtype_of(value.get<std::string>())));
        default: break;
    }
    const int64_t number = whole(value, "an attribute");
    if (letter == 'b') return checked(number, number == 0 || number == 1);
    if (letter >= '0' && letter <= '9') return checked(number, number >= 0 && number < letter - '0');
    if (letter != 'g') return checked(number, true);
    // Those that may not be left out are there, and the others are as many as the inputs say.
    bool fits = number >= 0 && std::popcount(static_cast<uint64_t>(number)) == static_cast<int>(n_inputs);
    for (size_t i = 0; i < 64; ++i) {
        const size_t parameters = std::string_view(info.tensors).size();
        const bool given = static_cast<uint64_t>(number) >> i & 1;
        fits = fits && (i < parameters ? given || info.tensors[i] == '?' : !given);
    }
    checked(number, fits);
}

void check_arity(const OpInfo& info, size_t n_inputs) {
    const std::string_view tensors = info.tensors;
    const size_t optional = static_cast<size_t>(std::count(tensors.begin(), tensors.end(), '?')), list = tensors.ends_with('*') ? 1 : 0;
    const size_t least = tensors.size() - optional - list;
    if (n_inputs < least || (list == 0 && n_inputs > tensors.size())) malformed(fmt::format("gives {} {} operands", info.name, n_inputs));
}

Ref<Tensor> number_of(const Json& step) {
    const DType dtype = dtype_of(text_of(step, "dtype"));
    const std::string bytes = text_of(step, "bytes");
    const auto size = static_cast<size_t>(size_of(dtype));
    unsigned char data[16];
    if (is_packed(dtype) || size > sizeof data || bytes.size() != 2 * size || bytes.find_first_not_of("0123456789abcdef") != std::string::npos) {
        malformed("has a constant whose bytes are not its dtype's");
    }
    for (size_t i = 0; i < size; ++i) data[i] = static_cast<unsigned char>(std::stoi(bytes.substr(2 * i, 2), nullptr, 16));
    const Ref<Tensor> tensor = tensor_from_host(data, dtype, Dims{});
    tensor->number = true;
    tensor->weak = member(step, "weak", Json::value_t::boolean).get<bool>();
    const bool is_weak = dtype == DType::Bool || dtype == DType::Int64 || dtype == DType::UInt64 || dtype == DType::Float64;
    if (tensor->weak && !is_weak) malformed("has a number of a program in another dtype than theirs");
    return tensor;
}

Json described(const SizeTerm& term) {
    const char* const name = size_term_names()[static_cast<size_t>(term.op)];
    if (term.op == SizeTerm::Op::Number || term.op == SizeTerm::Op::Dense) return {name, term.a};
    return {name, term.a, term.b};
}

/// Makes the calls of a description, which are recorded.
class Reader {
public:
    explicit Reader(std::vector<safetensors::Entry> entries) {
        for (auto& entry : entries) tensors_.emplace(entry.name, std::move(entry.tensor));
    }

    void read_sizes(const Json& sizes) {
        for (const Json& size : sizes) {
            if (!size.is_array() || size.empty() || !size[0].is_string()) malformed("has a size that is no list with a name");
            const auto names = size_term_names();
            const auto name = std::find(names.begin(), names.end(), size[0].get_ref<const std::string&>());
            if (name == names.end()) malformed("has a size that is computed in an unknown way");
            const auto op = static_cast<SizeTerm::Op>(name - names.begin());
            const bool one = op == SizeTerm::Op::Number || op == SizeTerm::Op::Dense;
            if (size.size() != (one ? 2u : 3u)) malformed("has a size of too many or too few numbers");
            const int64_t a = whole(size[1], "a size"), b = one ? 0 : whole(size[2], "a size");
            if (op == SizeTerm::Op::Number && is_size_code(a)) malformed("has a size that no tensor has");
            sizes_.push_back({op, a, b});
        }
    }

    /// What the program counts on, which holds for the sizes in the file.
    void require(const Json& condition) {
        const CallPlace place(condition.is_object() && condition.contains("place") ? text_of(condition, "place") : "");
        const int64_t code = code_of(whole(member(condition, "term", Json::value_t::number_integer), "a condition"));
        const int64_t value = whole(member(condition, "value", Json::value_t::number_integer), "a condition");
        if ((is_size_code(code) ? capture::require_size(code) : code) != value) malformed("counts on what its own sizes do not have");
    }

    void find_written(const Json& steps) {
        std::vector<int64_t> roots;
        for (const Json& step : steps) {
            roots.push_back(static_cast<int64_t>(roots.size()));
            if (!step.is_object() || step.value("kind", "") != "call") continue;
            const Json& inputs = member(step, "inputs", Json::value_t::array);
            const OpInfo* const info = find_op(step.value("op", ""));
            const bool in_place = step.value("in_place", false);
            if (!info || inputs.empty() || !(in_place || info->kind == NodeKind::View)) continue;
            const int64_t base = whole(inputs[0], "an operand");
            if (base < 0 || static_cast<size_t>(base) >= roots.size() - 1) continue;
            roots.back() = roots[static_cast<size_t>(base)];
            if (in_place) written_.insert(roots.back());
        }
    }

    void read(const Json& step) {
        const std::string kind = text_of(step, "kind");
        Ref<Tensor> value;
        if (kind == "input") {
            Dims shape;
            for (const Json& size : member(step, "shape", Json::value_t::array)) shape.push_back(whole(size, "a size"));
            const DType dtype = dtype_of(text_of(step, "dtype"));
            value = depth_ > 0 ? capture::region_input(dtype, shape) : capture::input(dtype, shape, text_of(step, "name"));
        } else if (kind == "external" && depth_ == 0) {
            const std::string name = text_of(step, "tensor");
            const auto it = tensors_.find(name);
            if (it == tensors_.end()) malformed(fmt::format("speaks of the tensor '{}', which is not in the file", name.substr(0, 64)));
            value = it->second;
            if (written_.contains(static_cast<int64_t>(values_.size()))) value = writable(*value);
        } else if (kind == "constant") {
            value = number_of(step);
            if (step.contains("size")) {
                if (depth_ > 0) malformed("has a size in a region");
                const int64_t code = code_of(whole(step["size"], "a size"));
                if (!value->weak || value->dtype() != DType::Int64) malformed("has a constant that comes from a size and is no whole number");
                if (is_size_code(code)) value = capture::size_number(code);
            }
        } else if (kind == "result") {
            const auto it = results_.find(whole(member(step, "of", Json::value_t::number_integer), "a result"));
            const int64_t which = step.contains("which") ? whole(step["which"], "a result") : 1;
            const bool found = it != results_.end() && which >= 0 && static_cast<size_t>(which) < it->second.size() && it->second[static_cast<size_t>(which)];
            if (!found) malformed("has a further result of something that has none");
            value = it->second[static_cast<size_t>(which)];
        } else if (kind == "control") {
            results_[static_cast<int64_t>(values_.size())] = results_of_control(step);
        } else if (kind == "call") {
            value = call_of(step);
        } else {
            malformed(fmt::format("has a step of the unknown kind '{}'", kind.substr(0, 32)));
        }
        values_.push_back(std::move(value));
    }

    Tensor& value(const Json& number) const { return value(whole(number, "an operand")); }
    Tensor& value(int64_t i) const {
        if (i < 0 || static_cast<size_t>(i) >= values_.size() || !values_[static_cast<size_t>(i)]) malformed("reads a value that is not there yet");
        return *values_[static_cast<size_t>(i)];
    }

private:
    /// The code, or the number, of one of the sizes; those it is computed of come before it, and what they are about is read already.
    int64_t code_of(int64_t size) {
        if (size < 0 || static_cast<size_t>(size) >= sizes_.size()) malformed("speaks of a size that is not there");
        while (codes_.size() <= static_cast<size_t>(size)) {
            const SizeTerm& term = sizes_[codes_.size()];
            if (term.op == SizeTerm::Op::Number) {
                codes_.push_back(term.a);
            } else if (term.is_fact()) {
                const bool shared = term.op == SizeTerm::Op::Shared, in_dimension = term.op == SizeTerm::Op::Size || term.op == SizeTerm::Op::Stride;
                if (in_dimension && (term.b < 0 || term.b >= value(term.a).rank())) malformed("has the size of a dimension that is not there");
                codes_.push_back(capture::fact(term.op, value(term.a), shared ? 0 : term.b, shared ? &value(term.b) : nullptr));
            } else {
                const auto computed = static_cast<int64_t>(codes_.size());
                if (term.a < 0 || term.a >= computed || term.b < 0 || term.b >= computed) malformed("computes with a size that is not there yet");
                codes_.push_back(capture::computed_size(term.op, codes_[static_cast<size_t>(term.a)], codes_[static_cast<size_t>(term.b)]));
            }
        }
        return codes_[static_cast<size_t>(size)];
    }

    Ref<Region> region_of(const Json& description) {
        if (++depth_ > kDeepest) malformed("has regions in regions that lie too deep");
        auto values = std::exchange(values_, {});
        auto results = std::exchange(results_, {});
        capture::begin_region();
        for (const Json& step : member(description, "steps", Json::value_t::array)) read(step);
        std::vector<Tensor*> outputs;
        for (const Json& output : member(description, "outputs", Json::value_t::array)) outputs.push_back(&value(output));
        Ref<Region> region = capture::end_region(outputs);
        values_ = std::move(values);
        results_ = std::move(results);
        --depth_;
        return region;
    }

    std::vector<Ref<Tensor>> results_of_control(const Json& step) {
        const std::string name = text_of(step, "op");
        const OpCode op = name == "cond" ? OpCode::Cond : OpCode::WhileLoop;
        if (name != op_info(op).name) malformed(fmt::format("has a control step of the unknown kind '{}'", name.substr(0, 32)));
        std::vector<Tensor*> operands;
        for (const Json& number : member(step, "inputs", Json::value_t::array)) operands.push_back(&value(number));
        const CallPlace place(step.contains("place") ? text_of(step, "place") : "");
        std::vector<Ref<Region>> regions;
        std::vector<Region*> both;
        for (const Json& region : member(step, "regions", Json::value_t::array)) both.push_back(regions.emplace_back(region_of(region)).get());
        if (both.size() != 2) malformed(fmt::format("has {} regions for {}", both.size(), name));
        return capture::control(op, operands, both);
    }

    Ref<Tensor> call_of(const Json& step) {
        const std::string name = text_of(step, "op");
        const OpInfo* const info = find_op(name);
        if (!info) fail(ErrorKind::NotImplemented, "graph.load: '{}' is no operator that is known here", name.substr(0, 64));
        SmallVector<Tensor*, 4> operands;
        for (const Json& number : member(step, "inputs", Json::value_t::array)) operands.push_back(&value(number));
        const Json& given = member(step, "attributes", Json::value_t::array);
        if (given.size() != std::string_view(info->attributes).size()) malformed(fmt::format("has {} attributes for {}", given.size(), name));
        const bool in_place = step.contains("in_place") && member(step, "in_place", Json::value_t::boolean).get<bool>();
        const std::span<Tensor* const> all(operands.data(), operands.size());
        if (in_place && info->code == OpCode::Copy) {
            if (all.size() != 2) malformed("copies something else than one tensor over another");
            copy_into(*all[0], *all[1]);
            return nullptr;
        }
        check_arity(*info, all.size());
        Attributes attributes;
        for (size_t i = 0; i < given.size(); ++i) add_attribute(attributes, info->attributes[i], given[i], *info, all.size());
        if (step.contains("sizes")) {
            if (depth_ > 0) malformed("has a size in a region");
            for (const Json& use : member(step, "sizes", Json::value_t::array)) {
                if (!use.is_array() || use.size() != 3) malformed(fmt::format("has a size for {} that is no list of three", name));
                const int64_t i = whole(use[0], "an attribute"), k = whole(use[1], "an attribute");
                const bool fits =
                    i >= 0 && i < attributes.count && info->has_sizes(static_cast<int>(i)) && k >= 0 && k < attributes.length(static_cast<int>(i));
                if (!fits) malformed(fmt::format("has a size for an attribute that {} does not have", name));
                attributes.values[attributes.items[i].offset + k] = code_of(whole(use[2], "a size"));
            }
        }
        const CallPlace place(step.contains("place") ? text_of(step, "place") : "");
        if (in_place) {
            if (all.empty() || !info->in_place) malformed(fmt::format("writes over an operand of {}, which does not do that", name));
            call_in_place(info->code, all, attributes);
            return nullptr;
        }
        Results results = call_many(info->code, all, attributes);
        if (results[1]) results_[static_cast<int64_t>(values_.size())] = {nullptr, std::move(results[1])};
        return std::move(results[0]);
    }

    static Ref<Tensor> writable(const Tensor& mapped) { return tensor_from_host(mapped.data(), mapped.dtype(), mapped.shape()); }

    std::unordered_map<std::string, Ref<Tensor>> tensors_;
    std::vector<SizeTerm> sizes_;
    std::vector<int64_t> codes_;  // of the first of them
    std::unordered_set<int64_t> written_;
    std::vector<Ref<Tensor>> values_;
    std::unordered_map<int64_t, std::vector<Ref<Tensor>>> results_;  // of steps that have several
    int depth_ = 0;                                                  // of regions
};

}  // namespace

void save_graph(const ModelGraph& graph, const std::string& path) {
    const Program& program = graph.recorded();
    const std::vector<int32_t> roots = program.find_roots();
    const std::vector<bool> written = program.find_written();
    Json steps = Json::array();
    std::vector<safetensors::Entry> entries;
    std::vector<Storage*> storages;
    std::unordered_map<int32_t, std::string> names;
    for (size_t i = 0; i < program.inputs.size(); ++i) names[program.inputs[i]] = graph.input_names()[i];
    for (size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        steps.push_back(described(step, i, names[static_cast<int32_t>(i)]));
        if (step.kind != NodeKind::External) continue;
        if (written[i] && roots[i] != static_cast<int32_t>(i)) {
            fail(ErrorKind::NotImplemented, "graph.save: the graph writes over memory that several of its tensors share, which a file cannot hold");
        }
        entries.push_back({std::to_string(i), dense_now(*step.value, "graph.save")});
        storages.push_back(&entries.back().tensor->storage());
    }
    Json outputs = Json::array();
    for (size_t i = 0; i < program.outputs.size(); ++i) outputs.push_back({{"name", graph.output_names()[i]}, {"value", program.outputs[i]}});
    const auto is_new = [](const Step& step) { return step.kind == NodeKind::Composite || step.kind == NodeKind::Control; };
    const bool is_first_version = program.sizes.empty() && std::none_of(program.steps.begin(), program.steps.end(), is_new);
    Json description{
        {"version", is_first_version ? 1 : kVersion}, {"any_sizes", graph.any_sizes()}, {"steps", std::move(steps)}, {"outputs", std::move(outputs)}};
    for (const SizeTerm& term : program.sizes) description["sizes"].push_back(described(term));
    for (const Condition& condition : program.conditions) {
        Json one{{"term", condition.term}, {"value", condition.value}};
        if (condition.place && condition.place->text()) one["place"] = *condition.place->text();
        description["conditions"].push_back(std::move(one));
    }
    std::string text = description.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (text.size() > kLongest) fail(ErrorKind::NotImplemented, "graph.save: the graph is too large, its description would take {} bytes", text.size());
    const HostRead reading(storages);
    safetensors::save(path, entries, {{kKey, std::move(text)}});
}

Ref<ModelGraph> load_graph(const std::string& path, int optimize) {
    safetensors::Metadata metadata;
    Reader reader(safetensors::map(path, metadata));
    const auto text = metadata.find(kKey);
    if (text == metadata.end()) fail(ErrorKind::Value, "graph.load: '{}' holds tensors and no graph", path);
    if (text->second.size() > kLongest)
        fail(ErrorKind::Value, "graph.load: the description of the graph in '{}' has {} bytes, at most {} are read", path, text->second.size(), kLongest);
    const Json description = Json::parse(text->second, nullptr, false);
    if (!description.is_object()) malformed("is not JSON");
    const int64_t version = whole(member(description, "version", Json::value_t::number_integer), "a version");
    if (version < 1 || version > kVersion) {
        fail(ErrorKind::Value, "graph.load: '{}' is of version {}, this library reads versions up to {}", path, version, kVersion);
    }
    const bool any_sizes = member(description, "any_sizes", Json::value_t::boolean).get<bool>();
    const Json& steps = member(description, "steps", Json::value_t::array);
    try {
        reader.find_written(steps);
    } catch (const Json::exception& error) {
        malformed(fmt::format("is not what it should be: {}", error.what()));
    }
    capture::begin(any_sizes);
    bool ended = false;
    try {
        if (description.contains("sizes")) reader.read_sizes(member(description, "sizes", Json::value_t::array));
        for (const Json& step : steps) reader.read(step);
        if (description.contains("conditions")) {
            for (const Json& condition : member(description, "conditions", Json::value_t::array)) reader.require(condition);
        }
        std::vector<Tensor*> outputs;
        std::vector<std::string> names;
        for (const Json& output : member(description, "outputs", Json::value_t::array)) {
            outputs.push_back(&reader.value(member(output, "value", Json::value_t::number_integer)));
            names.push_back(text_of(output, "name"));
        }
        ended = true;  // also when it throws
        return capture::end(outputs, std::move(names), {any_sizes, optimize});
    } catch (const Json::exception& error) {
        if (!ended) capture::cancel();
        malformed(fmt::format("is not what it should be: {}", error.what()));
    } catch (const Failure& failure) {
        if (!ended) capture::cancel();
        if (failure.error()->kind() != ErrorKind::Index) throw;
        malformed(fmt::format("has a call that is refused: {}", failure.error()->message()));
    } catch (...) {
        if (!ended) capture::cancel();
        throw;
    }
}

}  // namespace clikart
