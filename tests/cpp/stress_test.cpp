// Random programs of operators, streams, threads, in-place writes, views, borrowed memory and deferred calls: every value
// they read must have the bits that the same program reads when one thread runs it synchronously.
//
//   stress_test [--seconds S] [--threads T] [--seed N] [--rounds R] [--expect-mismatch]
//
// A round is one program, or one for each thread, drawn from the round's seed while the synchronous run, the oracle, plays it.
// "baton": all threads play one program over shared tensors and hand on the turn, so that calls are made in the program's
// order and only their execution overlaps.  "private": each thread plays a program of its own over its own tensors as fast as
// it can, on shared streams and with shared inputs.
#include <ClikaRT/clika_rt.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace ClikaRT;

namespace {

constexpr int kSlots = 20;   // tensors of a player, by number; the inputs that all players share have the numbers after them
constexpr int kPlaces = 3;   // results of nonzero, which cannot be operands while calls are deferred
constexpr int kShared = 4;   // inputs that all players read
constexpr int kStreams = 4;  // shared streams; the number after them is the default stream
constexpr int kNone = -1;
constexpr std::size_t kMostBorrows = 10;
constexpr std::chrono::seconds kHang{150};  // a round takes milliseconds, under a sanitizer some hundred

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t next() { return engine_(); }
    /// 0 ... n - 1
    std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
    bool once_in(std::int64_t n) { return below(n) == 0; }

private:
    std::mt19937_64 engine_;  // the same numbers everywhere, unlike the standard's distributions
};

/// Numbers in [-4, 4], some of them zero.
std::vector<float> random_values(std::int64_t seed, std::int64_t count) {
    Random random(static_cast<std::uint64_t>(seed));
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = random.once_in(8) ? 0.0f : static_cast<float>(random.below(8001) - 4000) / 1000;
    return values;
}

double share(std::int64_t count) {
    return 1.0 / static_cast<double>(std::max<std::int64_t>(1, count));
}

// ---- programs --------------------------------------------------------------------------------------------------------

struct Plan {
    explicit Plan(std::uint64_t seed) : random(seed) {
        constexpr std::int64_t sides[] = {3, 16, 16, 48, 48, 80, 96, 128, 256};
        side = sides[random.below(std::size(sides))];
        baton = !random.once_in(3);
        host_writes = random.once_in(3);
        steps = static_cast<std::size_t>(side > 100 ? 60 + random.below(120) : 100 + random.below(300));
        shared_seed = random.below(1'000'000);
    }
    Random random;
    std::int64_t side;
    bool baton;
    bool host_writes;  // the host may not write where a callback may read at any time: no Peek then
    std::size_t steps;
    std::int64_t shared_seed;
};

enum class Kind {
    Data,
    Full,
    Arange,
    Borrow,  // new tensors
    Add,
    Sub,
    Mul,
    Maximum,
    Relu,
    Abs,
    Copy,
    Matmul,
    Sum,  // new values
    Slice,
    Select,
    Permute,
    Reshape,  // views
    AddInto,
    SubInto,
    MulInto,
    MaximumInto,
    ReluInto,
    CopyInto,  // in place
    Nonzero,
    Places,
    Read,
    Callback,
    Peek,
    Drop,
    Poke,
    HostWrite,  // the rest; Places reads what Nonzero made
};  // clang-format would put each on a line of its own
struct KindInfo {
    Kind kind;
    const char* name;
    int weight;
};
constexpr KindInfo kKinds[] = {
    {Kind::Data, "data", 4},
    {Kind::Full, "full", 3},
    {Kind::Arange, "arange", 2},
    {Kind::Borrow, "borrow", 3},
    {Kind::Add, "add", 6},
    {Kind::Sub, "sub", 5},
    {Kind::Mul, "mul", 5},
    {Kind::Maximum, "maximum", 4},
    {Kind::Relu, "relu", 2},
    {Kind::Abs, "abs", 2},
    {Kind::Copy, "copy", 3},
    {Kind::Matmul, "matmul", 14},
    {Kind::Sum, "sum", 4},
    {Kind::Slice, "slice", 6},
    {Kind::Select, "select", 3},
    {Kind::Permute, "permute", 4},
    {Kind::Reshape, "reshape", 4},
    {Kind::AddInto, "add_", 9},
    {Kind::SubInto, "sub_", 5},
    {Kind::MulInto, "mul_", 6},
    {Kind::ReluInto, "relu_", 2},
    {Kind::CopyInto, "copy_", 9},
    {Kind::Nonzero, "nonzero", 2},
    {Kind::Places, "places", 3},
    {Kind::Read, "read", 5},
    {Kind::Callback, "callback", 5},
    {Kind::Peek, "peek", 3},
    {Kind::Drop, "drop", 5},
    {Kind::Poke, "poke", 5},
    {Kind::HostWrite, "host", 2},
    {Kind::MaximumInto, "maximum_", 4},
};

enum class Mode { Eager, Tracing, Synchronous };

struct Step {
    Kind kind = Kind::Data;
    std::size_t number = 0;
    int thread = 0;
    int stream = kNone;  // none: the thread's own
    Mode mode = Mode::Eager;
    int out = kNone, a = kNone, b = kNone;
    std::array<std::int64_t, 4> p{};
    Shape shape;
    std::vector<float> expected;  // what the oracle read here
};

struct Program {
    std::deque<Step> steps;  // callbacks keep references
    std::vector<std::vector<float>> slots;
    std::vector<float> buffer;
};

std::string describe(const Step& step) {
    std::string text = std::to_string(step.number) + ": thread " + std::to_string(step.thread);
    if (step.stream != kNone) text += step.stream == kStreams ? ", default stream" : ", stream " + std::to_string(step.stream);
    if (step.mode != Mode::Eager) text += step.mode == Mode::Tracing ? ", tracing" : ", synchronous";
    const char* name = "";
    for (const KindInfo& info : kKinds) name = info.kind == step.kind ? info.name : name;
    text += std::string("  ") + name + " out " + std::to_string(step.out) + ", a " + std::to_string(step.a) + ", b " + std::to_string(step.b) + ", p";
    for (const std::int64_t p : step.p) text += " " + std::to_string(p);
    text += ", shape [";
    for (const std::int64_t size : step.shape) text += " " + std::to_string(size);
    return text + " ]";
}

/// Where and how the run first left the oracle.
class Verdict {
public:
    void fail(const Program* program, std::size_t step, std::string what) {
        std::lock_guard lock(mutex_);
        if (program_) return;
        program_ = program;
        step_ = step;
        what_ = std::move(what);
        failed_ = true;
    }
    void compare(const Program& program, std::size_t step, const std::string& what, const std::vector<float>& got, const std::vector<float>& expected) {
        if (got.size() != expected.size()) {
            return fail(&program, step, what + ": " + std::to_string(got.size()) + " elements, not " + std::to_string(expected.size()));
        }
        for (std::size_t i = 0; i < got.size(); ++i) {
            if (!std::memcmp(&got[i], &expected[i], sizeof got[i])) continue;
            char text[160];
            std::snprintf(text, sizeof text, ": element %zu of %zu is %.9g, not %.9g", i, got.size(), static_cast<double>(got[i]),
                          static_cast<double>(expected[i]));
            return fail(&program, step, what + text);
        }
    }
    bool failed() const { return failed_; }
    /// After the round.
    void print() const {
        for (const Step& step : program_->steps) {
            if (step.number <= step_) std::fprintf(stderr, "  %s\n", describe(step).c_str());
        }
        std::fprintf(stderr, "mismatch at step %zu: %s\n", step_, what_.c_str());
    }

private:
    std::mutex mutex_;
    const Program* program_ = nullptr;
    std::size_t step_ = 0;
    std::string what_;
    std::atomic<bool> failed_{false};
};

/// Things that must happen as often as they were promised.
class Tally {
public:
    void promise() { ++promised_; }
    void keep() {
        std::lock_guard lock(mutex_);
        ++kept_;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return kept_ >= promised_; });
    }
    std::int64_t promised() const { return promised_; }
    std::int64_t kept() {
        std::lock_guard lock(mutex_);
        return kept_;
    }

private:
    std::atomic<std::int64_t> promised_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
    std::int64_t kept_ = 0;
};

struct Totals {
    Tally callbacks, borrows;
    std::atomic<std::int64_t> operators{0};
};

/// What the players of a round have in common.
struct Surroundings {
    std::vector<Stream> streams;
    std::vector<Tensor> inputs;
    Verdict& verdict;
    Totals& totals;
};

// ---- playing ---------------------------------------------------------------------------------------------------------

/// Runs the steps of a program, as the oracle, which notes what is read, or compared with it.
class Player {
public:
    Player(Program& program, Surroundings& around, bool oracle, const Plan& plan)
        : slots_(kSlots),
          places_(kPlaces),
          program_(program),
          around_(around),
          oracle_(oracle),
          buffer_(random_values(plan.side, 3 * plan.side * plan.side)),
          calls_(plan.steps) {}
    ~Player() { around_.totals.operators += operators_; }
    Player(const Player&) = delete;
    Player& operator=(const Player&) = delete;

    void play(Step& step) {
        if (oracle_) return act(step);
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        std::optional<SynchronousStreamScope> synchronous;
        if (step.stream != kNone) stream.emplace(around_.streams[static_cast<std::size_t>(step.stream)]);
        if (step.mode == Mode::Tracing) tracing.emplace();
        if (step.mode == Mode::Synchronous) synchronous.emplace();
        try {
            act(step);
        } catch (const std::exception& error) {
            around_.verdict.fail(&program_, step.number, std::string("threw ") + error.what());
        }
    }

    /// Notes or compares all that can still be reached, and lets go of it.
    void finish() {
        if (oracle_) program_.slots.resize(kSlots);
        for (std::size_t i = 0; i < kSlots; ++i) {
            if (slots_[i].handle()) end_of(slots_[i].item_as_vec<float>(), program_.slots[i], "tensor " + std::to_string(i) + " at the end");
        }
        for (const Lent& lent : lent_) lent.tensor.synchronize();  // deferred writes to memory that no slot reaches
        end_of(buffer_, program_.buffer, "borrowed memory at the end");
    }
    void require_single_calls() {
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if (calls_[i] > 1) around_.verdict.fail(&program_, i, "the callback was called more than once");
        }
    }
    void let_go() {
        slots_.assign(kSlots, {});
        places_.assign(kPlaces, {});
        lent_.clear();
    }

    const Tensor& operand(int number) const {
        static const Tensor none;
        if (number == kNone) return none;
        const auto i = static_cast<std::size_t>(number);
        return i < kSlots ? slots_[i] : around_.inputs[i - kSlots];
    }
    int operands() const { return kSlots + static_cast<int>(around_.inputs.size()); }
    const Tensor& places(std::size_t i) const { return places_[i]; }
    std::size_t borrows() const { return lent_.size(); }
    std::int64_t borrowed_elements(std::size_t i) const { return lent_[i].elements; }
    std::int64_t buffer_elements() const { return static_cast<std::int64_t>(buffer_.size()); }

private:
    /// Kept to the end, so that no deferred write to the memory ends with its tensor.
    struct Lent {
        Tensor tensor;
        float* data;
        std::int64_t elements;
    };

    Tensor counted(Tensor result) {
        ++operators_;
        return result;
    }
    /// Keeps values within [-4, 4] without drawing them together: a tent, which tells apart what was close.
    Tensor fold(const Tensor& x, double scale) {
        operators_ += 4;
        return ops::maximum(ops::add(ops::mul(ops::abs(x), -scale), 3.9), -4);
    }
    void fold_(const Tensor& x, double scale) {
        operators_ += 5;
        ops::abs_(x);
        ops::mul_(x, -scale);
        ops::add_(x, 3.9);
        ops::maximum_(x, -4);
    }
    void end_of(const std::vector<float>& values, std::vector<float>& expected, const std::string& what) {
        if (oracle_) {
            expected = values;
        } else {
            around_.verdict.compare(program_, program_.steps.size(), what, values, expected);
        }
    }
    void observe(Step& step, std::vector<float> values) {
        if (oracle_) {
            step.expected = std::move(values);
        } else {
            around_.verdict.compare(program_, step.number, "read", values, step.expected);
        }
    }
    static std::vector<float> places_as_values(const Tensor& places) {
        std::vector<float> values{static_cast<float>(places.shape()[0])};
        for (const std::int64_t place : places.item_as_vec<std::int64_t>()) values.push_back(static_cast<float>(place));
        return values;
    }

    Tensor borrow(const Step& step) {
        std::int64_t elements = 1;
        for (const std::int64_t size : step.shape) elements *= size;
        float* const data = buffer_.data() + step.p[0];
        Tally& borrows = around_.totals.borrows;
        borrows.promise();
        lent_.push_back({Tensor::borrow(data, step.shape, [&borrows] { borrows.keep(); }), data, elements});
        return lent_.back().tensor;
    }

    void call_back(Step& step, const Tensor& tensor, bool compare) {
        if (oracle_) return observe(step, tensor.item_as_vec<float>());
        around_.totals.callbacks.promise();
        tensor.on_complete([this, &step, compare](const Tensor& settled) {
            ++calls_[step.number];
            try {
                const std::vector<float> values = (step.p[1] % 3 ? settled : ops::copy(settled)).item_as_vec<float>();
                if (compare) observe(step, values);
            } catch (const std::exception& error) {
                around_.verdict.fail(&program_, step.number, std::string("the callback threw ") + error.what());
            }
            around_.totals.callbacks.keep();
        });
    }

    void poke(const Tensor& a, std::int64_t how) {
        switch (how) {
            case 0: a.start(); break;
            case 1: a.wait_for(std::chrono::microseconds(20)); break;
            case 2: a.synchronize(); break;
            case 3: a.stream().query_idle(); break;
            case 4: around_.streams[static_cast<std::size_t>(kStreams / 2)].synchronize(); break;
            case 5: a.is_ready(); break;
            case 6: a.status(); break;
            default: clikart_memory_trim();
        }
    }

    void host_write(const Step& step) {
        const Lent& lent = lent_[static_cast<std::size_t>(step.p[0])];
        if (clikart_tensor_wait_writable(lent.tensor.handle(), -1) != 1) detail::throw_error();
        const std::vector<float> values = random_values(step.p[1], step.p[3]);
        std::copy(values.begin(), values.end(), lent.data + step.p[2]);
    }

    void act(Step& step) {
        const Tensor a = operand(step.a), b = operand(step.b);
        Tensor out;
        const auto [p0, p1, p2, p3] = step.p;
        const StreamOrDevice where = p1 % 2 && !oracle_ ? StreamOrDevice(around_.streams[static_cast<std::size_t>(p2 % kStreams)]) : StreamOrDevice();
        switch (step.kind) {
            case Kind::Data: out = Tensor::from_data(random_values(p0, step.shape[0] * step.shape[1]).data(), step.shape); break;
            case Kind::Full: out = counted(ops::full(step.shape, static_cast<double>(p0) / 8, DataType::Float32, where)); break;
            case Kind::Arange: out = counted(ops::arange(-2.0, static_cast<double>(p0) / 8, 0.125, DataType::Float32, where)); break;
            case Kind::Borrow: out = borrow(step); break;
            case Kind::Add: out = fold(counted(ops::add(a, b)), 0.97); break;
            case Kind::Sub: out = fold(counted(ops::sub(a, b)), 0.97); break;
            case Kind::Mul: out = fold(counted(ops::mul(a, b)), 0.48); break;
            case Kind::Maximum: out = counted(ops::maximum(a, b)); break;
            case Kind::Relu: out = counted(ops::relu(a)); break;
            case Kind::Abs: out = counted(ops::abs(a)); break;
            case Kind::Copy: out = counted(ops::copy(a)); break;
            case Kind::Matmul: out = fold(counted(ops::matmul(a, step.b == kNone ? a.permute({1, 0}) : b)), share(a.shape()[1])); break;
            case Kind::Sum: out = fold(counted(ops::sum(a, Shape{p0}, p1 % 2)), 2 * share(a.shape()[static_cast<std::size_t>(p0)])); break;
            case Kind::Slice: out = ops::slice(a, p0, p1, p2, p3); break;
            case Kind::Select: out = ops::select(a, p0, p1); break;
            case Kind::Permute: out = a.permute(step.shape); break;
            case Kind::Reshape: out = a.reshape(step.shape); break;
            case Kind::AddInto: fold_(ops::add_(a, b), 0.97); break;
            case Kind::SubInto: fold_(ops::sub_(a, b), 0.97); break;
            case Kind::MulInto: fold_(ops::mul_(a, b), 0.48); break;
            case Kind::MaximumInto: counted(ops::maximum_(a, b)); break;
            case Kind::ReluInto: counted(ops::relu_(a)); break;
            case Kind::CopyInto: counted(ops::copy_(a, b)); break;
            case Kind::Nonzero: {
                const EagerScope eager;  // it has to be inside of a TracingScope
                places_[static_cast<std::size_t>(p0)] = counted(ops::nonzero(a));
                break;
            }
            case Kind::Places: observe(step, places_as_values(places_[static_cast<std::size_t>(p0)])); break;
            case Kind::Read: observe(step, a.item_as_vec<float>()); break;
            case Kind::Callback: {  // of a value that nobody writes any more
                const Tensor last = fold(counted(ops::add(a, b)), 0.97);
                call_back(step, last.shape().size() == 2 && p0 % 2 ? last.permute({1, 0}) : last, true);
                break;
            }
            case Kind::Peek: call_back(step, a, false); break;
            case Kind::Drop: slots_[static_cast<std::size_t>(step.a)] = Tensor(); break;
            case Kind::Poke: poke(a, p0); break;
            case Kind::HostWrite: host_write(step); break;
        }
        if (step.out != kNone) slots_[static_cast<std::size_t>(step.out)] = std::move(out);
    }

    std::vector<Tensor> slots_, places_;
    std::vector<Lent> lent_;
    Program& program_;
    Surroundings& around_;
    const bool oracle_;
    std::vector<float> buffer_;
    std::vector<std::atomic<int>> calls_;  // of the callback of each step
    std::int64_t operators_ = 0;
};

// ---- drawing ---------------------------------------------------------------------------------------------------------

/// Draws steps that fit the tensors a player has.
class Draw {
public:
    Draw(Plan& plan, const Player& player) : plan_(plan), random_(plan.random), player_(player) {}

    Step step() {
        for (;;) {
            Step step;
            step.kind = kind();
            if (fill(step)) return step;
        }
    }

private:
    Kind kind() {
        static const int total = [] {
            int sum = 0;
            for (const KindInfo& info : kKinds) sum += info.weight;
            return sum;
        }();
        auto left = random_.below(total);
        for (const KindInfo& info : kKinds) {
            if ((left -= info.weight) < 0) return info.kind;
        }
        return Kind::Read;
    }

    template <class Fits>
    int choose(int numbers, Fits&& fits) {
        std::vector<int> found;
        for (int i = 0; i < numbers; ++i) {
            if (const Tensor& tensor = player_.operand(i); tensor.handle() && fits(tensor.shape())) found.push_back(i);
        }
        return found.empty() ? kNone : found[static_cast<std::size_t>(random_.below(static_cast<std::int64_t>(found.size())))];
    }
    int choose_of_rank(std::size_t least) {
        return choose(kSlots, [&](const Shape& shape) { return shape.size() >= least; });
    }
    int choose_for(const Shape& to) {
        return choose(player_.operands(), [&](const Shape& from) {
            if (from.size() > to.size()) return false;
            for (std::size_t i = 1; i <= from.size(); ++i) {
                if (from[from.size() - i] != 1 && from[from.size() - i] != to[to.size() - i]) return false;
            }
            return true;
        });
    }
    Shape sizes() {
        const std::int64_t n = plan_.side;
        return random_.once_in(4) ? Shape{1 + random_.below(n), n} : Shape{n, n};
    }

    bool fill(Step& step) {
        for (std::int64_t& p : step.p) p = random_.below(1'000'000);
        const auto to_slot = [&] { step.out = static_cast<int>(random_.below(kSlots)); };
        switch (step.kind) {
            case Kind::Data: step.shape = sizes(); return to_slot(), true;
            case Kind::Full: step.shape = sizes(), step.p[0] = random_.below(65) - 32; return to_slot(), true;
            case Kind::Arange: step.p[0] = random_.below(48) - 15; return to_slot(), true;
            case Kind::Borrow:
                step.shape = sizes();
                step.p[0] = random_.below(player_.buffer_elements() - step.shape[0] * step.shape[1] + 1);
                return to_slot(), player_.borrows() < kMostBorrows;
            case Kind::HostWrite: return plan_.host_writes && player_.borrows() && fill_host_write(step);
            case Kind::Places: step.p[0] = random_.below(kPlaces); return player_.places(static_cast<std::size_t>(step.p[0])).handle() != nullptr;
            case Kind::Peek:
                if (plan_.host_writes) return false;
                break;
            default: break;
        }
        if ((step.a = choose_of_rank(least_rank(step.kind))) == kNone) return false;
        const Shape shape = player_.operand(step.a).shape();
        switch (step.kind) {
            case Kind::Relu:
            case Kind::Abs:
            case Kind::Copy: return to_slot(), true;
            case Kind::Add:
            case Kind::Sub:
            case Kind::Mul:
            case Kind::Maximum: step.b = choose_for(shape); return to_slot(), true;
            case Kind::AddInto:
            case Kind::SubInto:
            case Kind::MulInto:
            case Kind::MaximumInto:
            case Kind::CopyInto:
            case Kind::Callback: step.b = choose_for(shape); return true;
            case Kind::Matmul:
                if (shape.size() != 2) return false;
                step.b = choose(player_.operands(), [&](const Shape& other) { return other.size() == 2 && other[0] == shape[1]; });
                return to_slot(), true;
            case Kind::Slice:
            case Kind::Select:
            case Kind::Sum: return to_slot(), fill_along(step, shape);
            case Kind::Permute:
                step.shape = shape.size() == 2 ? Shape{1, 0} : step.p[0] % 2 ? Shape{2, 0, 1} : Shape{0, 2, 1};
                return to_slot(), shape.size() <= 3;
            case Kind::Reshape: return to_slot(), fill_reshape(step, shape);
            case Kind::Nonzero: step.p[0] = random_.below(kPlaces); return true;
            case Kind::Poke: step.p[0] = random_.below(9); return true;
            default: return true;
        }
    }

    static std::size_t least_rank(Kind kind) {
        switch (kind) {
            case Kind::Matmul:
            case Kind::Permute: return 2;
            case Kind::Slice:
            case Kind::Select:
            case Kind::Sum:
            case Kind::Nonzero: return 1;
            default: return 0;
        }
    }

    bool fill_host_write(Step& step) {
        step.p[0] = random_.below(static_cast<std::int64_t>(player_.borrows()));
        const std::int64_t elements = player_.borrowed_elements(static_cast<std::size_t>(step.p[0]));
        step.p[2] = random_.below(elements);
        step.p[3] = 1 + random_.below(elements - step.p[2]);
        return true;
    }
    bool fill_along(Step& step, const Shape& shape) {
        step.p[0] = random_.below(static_cast<std::int64_t>(shape.size()));
        const std::int64_t size = shape[static_cast<std::size_t>(step.p[0])];
        if (step.kind == Kind::Sum) return true;
        if (size == 0) return false;
        if (step.kind == Kind::Select) {
            step.p[1] = random_.below(size);
        } else {  // seldom nothing at all
            step.p[3] = random_.once_in(4) ? 2 : random_.once_in(4) ? -1 : 1;
            const std::int64_t from = random_.below(size), to = random_.once_in(40) ? from : from + 1 + random_.below(size - from);
            step.p[1] = step.p[3] < 0 ? to - 1 : from;
            step.p[2] = step.p[3] < 0 ? from - 1 - (from == 0 ? size : 0) : to;
        }
        return true;
    }
    bool fill_reshape(Step& step, const Shape& shape) {
        std::int64_t elements = 1;
        for (const std::int64_t size : shape) elements *= size;
        switch (random_.below(4)) {
            case 0: step.shape = {elements}; return true;
            case 1: step.shape = {2, elements / 2}; return elements % 2 == 0;
            case 2: step.shape = {elements / 4, 2, 2}; return elements % 4 == 0;
            default: step.shape = {elements / plan_.side, plan_.side}; return elements % plan_.side == 0;
        }
    }

    Plan& plan_;
    Random& random_;
    const Player& player_;
};

/// Plays a program as it is drawn.  In a baton round the thread changes every few steps, and each keeps its stream and mode for a while.
void draw(Plan& plan, Program& program, Player& oracle, int threads, int only_thread) {
    struct Settings {
        int stream = kNone;
        Mode mode = Mode::Eager;
    };
    Random& random = plan.random;
    std::vector<Settings> settings(static_cast<std::size_t>(threads));
    Draw draw(plan, oracle);
    int thread = only_thread == kNone ? 0 : only_thread;
    for (std::size_t i = 0; i < plan.steps; ++i) {
        if (only_thread == kNone && random.once_in(3)) thread = static_cast<int>(random.below(threads));
        Settings& own = settings[static_cast<std::size_t>(thread)];
        if (random.once_in(6)) own.stream = static_cast<int>(random.below(kStreams + 4)) - 3;
        if (own.stream < kNone) own.stream = kNone;
        if (random.once_in(own.mode == Mode::Tracing ? 12 : 6))
            own.mode = random.once_in(3) ? Mode::Tracing : random.once_in(12) ? Mode::Synchronous : Mode::Eager;
        Step& step = program.steps.emplace_back(draw.step());
        step.number = i;
        step.thread = thread;
        step.stream = random.once_in(60) ? kStreams : own.stream;
        step.mode = own.mode;
        oracle.play(step);
    }
}

// ---- rounds ----------------------------------------------------------------------------------------------------------

class Baton {
public:
    explicit Baton(int threads) : turned_(static_cast<std::size_t>(threads)) {}
    void await(const Step& step) {
        std::unique_lock lock(mutex_);
        turned_[static_cast<std::size_t>(step.thread)].wait(lock, [&] { return next_ == step.number; });
    }
    void pass_to(const Step& step) {
        std::lock_guard lock(mutex_);
        next_ = step.number;
        turned_[static_cast<std::size_t>(step.thread)].notify_one();
    }

private:
    std::mutex mutex_;
    std::vector<std::condition_variable> turned_;
    std::size_t next_ = 0;
};

void play_with_baton(Program& program, Player& player, Baton& baton, int thread, const Verdict& verdict) {
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
        if (program.steps[i].thread != thread) continue;
        baton.await(program.steps[i]);
        if (!verdict.failed()) player.play(program.steps[i]);
        if (i + 1 < program.steps.size()) baton.pass_to(program.steps[i + 1]);
    }
}

void play_alone(Program& program, Player& player, const Verdict& verdict) {
    for (Step& step : program.steps) {
        if (verdict.failed()) return;
        player.play(step);
    }
}

/// Some of them deferred, so that several threads submit them at once.
std::vector<Tensor> shared_inputs(const Plan& plan, const std::vector<Stream>& streams) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < kShared; ++i) {
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        if (!streams.empty()) stream.emplace(streams[i]);
        if (!streams.empty() && i % 2) tracing.emplace();
        const std::int64_t n = plan.side;
        const Tensor data = Tensor::from_data(random_values(plan.shared_seed + static_cast<std::int64_t>(i), n * n).data(), {n, n});
        inputs.push_back(ops::maximum(ops::mul(ops::matmul(data, data), -share(n)), -4));
    }
    return inputs;
}

/// False when the run left the oracle; then it was told.
bool play_round(std::uint64_t seed, int threads, Totals& totals) {
    const std::int64_t memory = clikart_memory_current();
    Plan plan(seed);
    const int players = plan.baton ? 1 : threads;
    std::deque<Program> programs(static_cast<std::size_t>(players));
    Verdict verdict;
    {
        const SynchronousStreamScope synchronous;
        Totals uncounted;
        Surroundings around{{}, plan.baton ? std::vector<Tensor>() : shared_inputs(plan, {}), verdict, uncounted};
        for (int i = 0; i < players; ++i) {
            Program& program = programs[static_cast<std::size_t>(i)];
            Player oracle(program, around, true, plan);
            draw(plan, program, oracle, threads, plan.baton ? kNone : i);
            oracle.finish();
            oracle.let_go();
        }
    }
    Surroundings around{{}, {}, verdict, totals};
    for (int i = 0; i < kStreams; ++i) around.streams.push_back(Stream::create(Device::cpu()));
    if (!plan.baton) around.inputs = shared_inputs(plan, around.streams);
    around.streams.push_back(Stream::default_stream(Device::cpu()));
    std::deque<Player> run;
    for (Program& program : programs) run.emplace_back(program, around, false, plan);
    Baton baton(threads);
    std::vector<std::thread> crew;
    for (int t = 0; t < threads; ++t) {
        crew.emplace_back([&, t] {
            if (plan.baton) return play_with_baton(programs[0], run[0], baton, t, verdict);
            play_alone(programs[static_cast<std::size_t>(t)], run[static_cast<std::size_t>(t)], verdict);
        });
    }
    for (std::thread& thread : crew) thread.join();
    for (Player& player : run) {
        if (!verdict.failed()) player.finish();
    }
    totals.callbacks.wait();
    for (Player& player : run) {
        player.require_single_calls();
        player.let_go();
    }
    around.inputs.clear();
    totals.borrows.wait();
    clikart_drain();
    // Callbacks and workers may still be about to let go of what they held last.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (clikart_memory_current() != memory && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (const std::int64_t now = clikart_memory_current(); now != memory) {
        verdict.fail(&programs[0], plan.steps, "memory: " + std::to_string(now - memory) + " bytes more than before the round");
    }
    if (!verdict.failed()) return true;
    std::fprintf(stderr, "%s round, side %lld, seed %llu:\n", plan.baton ? "baton" : "private", static_cast<long long>(plan.side),
                 static_cast<unsigned long long>(seed));
    verdict.print();
    return false;
}

struct Options {
    double seconds = 0;  // 0: no limit
    std::int64_t rounds = 0;
    int threads = 4;
    std::uint64_t seed = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    bool expect_mismatch = false;
};

Options parse(int argc, char** argv) {
    Options options;
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--expect-mismatch") {
            options.expect_mismatch = true;
            continue;
        }
        const char* const value = i + 1 < argc ? argv[++i] : "";
        if (name == "--seconds") options.seconds = std::atof(value);
        if (name == "--rounds") options.rounds = std::atoll(value);
        if (name == "--threads") options.threads = std::max(1, std::atoi(value));
        if (name == "--seed") options.seed = std::strtoull(value, nullptr, 10);
    }
    if (options.seconds <= 0 && options.rounds <= 0) options.seconds = 10;
    return options;
}

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    std::printf("stress: seed %llu, %d threads\n", static_cast<unsigned long long>(options.seed), options.threads);
    std::fflush(stdout);
    Totals totals;
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    std::uint64_t seed = options.seed;
    std::int64_t rounds = 0;
    bool same = true;
    const auto tell_replay = [&] {
        std::fprintf(stderr, "replay: %s --seed %llu --threads %d --rounds 1\n", argv[0], static_cast<unsigned long long>(seed), options.threads);
    };
    while ((options.rounds <= 0 || rounds < options.rounds) && (options.seconds <= 0 || elapsed() < options.seconds)) {
        std::future<bool> round = std::async(std::launch::async, [&] { return play_round(seed, options.threads, totals); });
        if (round.wait_for(kHang) != std::future_status::ready) {
            std::fprintf(stderr, "no end of a round; callbacks %lld of %lld\n", static_cast<long long>(totals.callbacks.kept()),
                         static_cast<long long>(totals.callbacks.promised()));
            tell_replay();
            std::_Exit(1);
        }
        ++rounds;
        same = round.get();
        if (!same) {
            tell_replay();
            break;
        }
        seed = Random(seed).next();
    }
    std::printf("stress: seed %llu, %lld rounds, %lld operators in %.1f s, %lld callbacks registered, %lld fired\n",
                static_cast<unsigned long long>(options.seed), static_cast<long long>(rounds), static_cast<long long>(totals.operators.load()), elapsed(),
                static_cast<long long>(totals.callbacks.promised()), static_cast<long long>(totals.callbacks.kept()));
    same = same && totals.callbacks.promised() == totals.callbacks.kept();
    return same == options.expect_mismatch;
}
