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
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <numeric>
#include <random>
#include <string_view>
#include <thread>

using namespace ClikaRT;

namespace {

constexpr std::size_t kSlots = 20;   // tensors of a player, by number; the inputs that all players share have the numbers after them
constexpr std::size_t kShared = 4;   // inputs that all players read
constexpr std::size_t kStreams = 4;  // shared streams; the number after them is the default stream
constexpr std::size_t kPlaces = 3;   // results of nonzero, which cannot be operands while calls are deferred
constexpr std::size_t kBorrows = 10;
constexpr std::size_t kNone = ~std::size_t{0};
constexpr std::chrono::seconds kHang{150};  // a round takes milliseconds, under a sanitizer some hundred

struct Random {
    explicit Random(std::uint64_t seed) : engine(seed) {}
    /// 0 ... n - 1
    std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(n)); }
    std::size_t index(std::size_t n) { return static_cast<std::size_t>(engine() % n); }
    bool once_in(std::int64_t n) { return below(n) == 0; }

    std::mt19937_64 engine;  // the same numbers everywhere, unlike the standard's distributions
};

/// Numbers in [-4, 4], some of them zero.
std::vector<float> random_values(std::int64_t seed, std::int64_t count) {
    Random random(static_cast<std::uint64_t>(seed));
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = random.once_in(8) ? 0.0f : static_cast<float>(random.below(8001) - 4000) / 1000;
    return values;
}

// ---- programs --------------------------------------------------------------------------------------------------------

/// What a round is like.
struct Plan {
    explicit Plan(std::uint64_t seed) : random(seed) {}
    Random random;  // the first, as the others are drawn from it
    // Of the matrices: the larger ones keep streams busy, the small ones run on the caller.
    const std::int64_t side = std::array{3, 16, 16, 48, 48, 80, 96, 128, 256}[random.index(9)];
    const std::size_t steps = side > 100 ? 60 + random.index(120) : 100 + random.index(300);
    const bool baton = !random.once_in(3);
    const bool host_writes = random.once_in(3);  // then no callback may read borrowed memory at any time
    const std::int64_t input_seed = random.below(1'000'000);
};

enum class Mode { Eager, Tracing, Synchronous };

struct Kind;
struct Step {
    const Kind* kind = nullptr;
    std::size_t number = 0, thread = 0;
    std::size_t stream = kNone;  // none: the thread's own
    Mode mode = Mode::Eager;
    std::size_t out = kNone, a = kNone, b = kNone;
    std::array<std::int64_t, 4> p{};  // as the kind likes
    Shape shape;
    std::vector<float> expected;  // what the oracle read here
};

struct Program {
    std::deque<Step> steps;  // callbacks keep references
    std::vector<std::vector<float>> slots;
    std::vector<float> buffer;
};

struct Player;
struct Draw;
struct Kind {
    const char* name;
    int weight;
    int rank;     // operand a has at least so many dimensions; -1: there is none
    bool second;  // operand b broadcasts to a
    bool makes;   // a tensor for a slot
    /// Runs it.
    Tensor (*act)(Player&, Step&, const Tensor& a, const Tensor& b);
    /// Draws what is left to choose; false when it does not fit.
    bool (Draw::*choose)(Step&, const Shape& a) = nullptr;
};

std::string describe(const Step& step) {
    const auto number = [](const char* name, std::size_t value) { return value == kNone ? "" : name + std::to_string(value); };
    std::string text = std::to_string(step.number) + number(": thread ", step.thread);
    text += step.stream == kStreams ? ", default stream" : number(", stream ", step.stream);
    text += step.mode == Mode::Tracing ? ", tracing" : step.mode == Mode::Synchronous ? ", synchronous" : "";
    text += std::string("   ") + step.kind->name + number("  out ", step.out) + number("  a ", step.a) + number("  b ", step.b) + "  p";
    for (const std::int64_t p : step.p) text += " " + std::to_string(p);
    text += step.shape.empty() ? "" : "  shape";
    for (const std::int64_t size : step.shape) text += " " + std::to_string(size);
    return text;
}

/// Where and how the run first left the oracle.
class Verdict {
public:
    void fail(const Program& program, std::size_t step, std::string what) {
        std::lock_guard lock(mutex_);
        if (program_) return;
        program_ = &program;
        step_ = step;
        what_ = std::move(what);
        failed_ = true;
    }
    void compare(const Program& program, std::size_t step, const std::string& what, const std::vector<float>& got, const std::vector<float>& expected) {
        std::size_t i = 0;
        while (i < std::min(got.size(), expected.size()) && !std::memcmp(&got[i], &expected[i], sizeof got[i])) ++i;
        if (i == got.size() && i == expected.size()) return;
        const auto value = [i](const std::vector<float>& values) { return i < values.size() ? values[i] : std::nanf(""); };
        char text[160];
        std::snprintf(text, sizeof text, ": element %zu of %zu (of %zu) is %.9g, not %.9g", i, got.size(), expected.size(), value(got), value(expected));
        fail(program, step, what + text);
    }
    bool failed() const { return failed_; }
    /// After the round.
    void print() const {
        for (std::size_t i = 0; i < program_->steps.size() && i <= step_; ++i) std::fprintf(stderr, "  %s\n", describe(program_->steps[i]).c_str());
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
struct Tally {
    void keep() {
        ++kept;
        kept.notify_all();
    }
    void wait() const {
        for (std::int64_t now = kept; now < promised; now = kept) kept.wait(now);
    }
    std::atomic<std::int64_t> promised{0}, kept{0};
};

struct Totals {
    Tally callbacks, borrows;
    std::atomic<std::int64_t> operators{0};
};

// ---- playing ---------------------------------------------------------------------------------------------------------

/// What the players of a round have in common.
struct Surroundings {
    std::vector<Stream> streams;
    std::vector<Tensor> inputs;
    Verdict& verdict;
    Totals& totals;
};

/// Runs the steps of a program: as the oracle, which notes what is read, or compared with it.
struct Player {
    Player(Program& program, Surroundings& around, bool oracle, const Plan& plan)
        : program(program), around(around), oracle(oracle), calls(plan.steps), buffer(random_values(plan.side, 3 * plan.side * plan.side)) {}
    ~Player() { around.totals.operators += operators; }

    void play(Step& step) {
        if (oracle) return act(step);
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        std::optional<SynchronousStreamScope> synchronous;
        if (step.stream != kNone) stream.emplace(around.streams[step.stream]);
        if (step.mode == Mode::Tracing) tracing.emplace();
        if (step.mode == Mode::Synchronous) synchronous.emplace();
        guarded(step.number, [&] { act(step); });
    }
    /// Notes or compares all that can still be reached.
    void finish() {
        const std::size_t end = program.steps.size();
        program.slots.resize(kSlots);
        guarded(end, [&] {
            for (std::size_t i = 0; i < kSlots; ++i) {
                if (slots[i].handle()) note(slots[i].item_as_vec<float>(), program.slots[i], end, "tensor " + std::to_string(i) + " at the end");
            }
            for (const Lent& each : lent) each.tensor.synchronize();  // deferred writes to memory that no slot reaches
            note(buffer, program.buffer, end, "borrowed memory at the end");
        });
    }
    void let_go() {
        for (std::size_t i = 0; i < calls.size(); ++i) {
            if (calls[i] > 1) around.verdict.fail(program, i, "the callback was called more than once");
        }
        slots.fill({});
        places.fill({});
        lent.clear();
    }

    const Tensor& operand(std::size_t number) const { return number < kSlots ? slots[number] : around.inputs[number - kSlots]; }
    std::size_t operands() const { return kSlots + around.inputs.size(); }

    Tensor counted(Tensor result) {
        ++operators;
        return result;
    }
    /// Keeps values within [-4, 4] without drawing them together: a tent, which tells apart what was close.
    Tensor folded(const Tensor& x, double scale) {
        operators += 5;
        return ops::maximum(ops::add(ops::mul(ops::abs(x), -scale), 3.9), -4);
    }
    Tensor fold(const Tensor& x, double scale) {
        operators += 5;
        ops::abs_(x);
        ops::mul_(x, -scale);
        ops::add_(x, 3.9);
        return ops::maximum_(x, -4);
    }
    void read(Step& step, const std::vector<float>& values) { note(values, step.expected, step.number, "read"); }
    /// `frozen`: nobody writes it any more, so that the callback must find the value of now.
    void call_back(Step& step, const Tensor& value, bool frozen) {
        const Tensor tensor = value.shape().size() == 2 && step.p[0] % 2 ? value.permute({1, 0}) : value;
        if (oracle) return read(step, tensor.item_as_vec<float>());
        around.totals.callbacks.promised++;
        tensor.on_complete([this, &step, frozen](const Tensor& settled) {
            ++calls[step.number];
            guarded(step.number, [&] {
                const std::vector<float> values = (step.p[1] % 3 ? settled : ops::copy(settled)).item_as_vec<float>();
                if (frozen) read(step, values);
            });
            around.totals.callbacks.keep();
        });
    }
    void find_places(const Step& step, const Tensor& a) {
        const EagerScope eager;  // it has to be, inside of a TracingScope
        places[static_cast<std::size_t>(step.p[0]) % kPlaces] = counted(ops::nonzero(a));
    }
    void read_places(Step& step) {
        const Tensor& found = places[static_cast<std::size_t>(step.p[0])];
        std::vector<float> values{static_cast<float>(found.shape()[0])};
        for (const std::int64_t place : found.item_as_vec<std::int64_t>()) values.push_back(static_cast<float>(place));
        read(step, values);
    }
    Tensor born_with_data(const Step& step) { return Tensor::from_data(random_values(step.p[0], step.shape[0] * step.shape[1]).data(), step.shape); }
    Tensor borrow(const Step& step) {
        Tally& borrows = around.totals.borrows;
        borrows.promised++;
        lent.push_back({Tensor::borrow(buffer.data() + step.p[0], step.shape, [&borrows] { borrows.keep(); }), step.p[0]});
        return lent.back().tensor;
    }
    void host_write(const Step& step) {
        const Lent& to = lent[static_cast<std::size_t>(step.p[0])];
        detail::check(clikart_tensor_wait_writable(to.tensor.handle(), -1));
        const std::vector<float> values = random_values(step.p[1], step.p[3]);
        std::copy(values.begin(), values.end(), buffer.begin() + to.offset + step.p[2]);
    }
    void poke(const Tensor& a, std::int64_t how) {
        switch (oracle ? 0 : how) {
            case 1: a.wait_for(std::chrono::microseconds(20)); break;
            case 2: a.synchronize(); break;
            case 3: a.stream().query_idle(); break;
            case 4: around.streams[0].synchronize(); break;
            case 5: a.is_ready(), a.status(); break;
            case 6: clikart_memory_trim(); break;
            default: a.start();
        }
    }
    /// Sometimes a stream, which the oracle need not know.
    StreamOrDevice place(const Step& step) const {
        return oracle || step.p[1] % 2 ? StreamOrDevice() : StreamOrDevice(around.streams[static_cast<std::size_t>(step.p[2]) % kStreams]);
    }

    template <class F>
    void guarded(std::size_t step, F&& body) {
        try {
            body();
        } catch (const std::exception& error) {
            around.verdict.fail(program, step, std::string("threw: ") + error.what());
        }
    }
    void act(Step& step) {
        const Tensor a = step.a == kNone ? Tensor() : operand(step.a), b = step.b == kNone ? Tensor() : operand(step.b);
        Tensor out = step.kind->act(*this, step, a, b);
        if (step.out != kNone) slots[step.out] = std::move(out);
    }
    void note(const std::vector<float>& values, std::vector<float>& expected, std::size_t step, const std::string& what) {
        if (oracle) {
            expected = values;
        } else {
            around.verdict.compare(program, step, what, values, expected);
        }
    }

    struct Lent {
        Tensor tensor;
        std::int64_t offset;
    };
    Program& program;
    Surroundings& around;
    const bool oracle;
    std::vector<std::atomic<int>> calls;  // of the callback of each step
    std::int64_t operators = 0;
    std::array<Tensor, kSlots> slots;
    std::array<Tensor, kPlaces> places;
    std::vector<float> buffer;  // lent out in overlapping pieces
    std::vector<Lent> lent;     // all to the end, so that no deferred write to the memory ends with its tensor
};

// ---- drawing ---------------------------------------------------------------------------------------------------------

/// Draws steps that fit the tensors a player has.
struct Draw {
    Draw(Plan& plan, const Player& player) : plan(plan), random(plan.random), player(player) {}
    Step step();

    template <class Fits>
    std::size_t choose(std::size_t numbers, Fits&& fits) {
        std::vector<std::size_t> found;
        for (std::size_t i = 0; i < numbers; ++i) {
            if (const Tensor& tensor = player.operand(i); tensor.handle() && fits(tensor.shape())) found.push_back(i);
        }
        return found.empty() ? kNone : found[random.index(found.size())];
    }
    std::int64_t largest() const { return 2 * plan.side * plan.side; }

    bool sizes(Step& step, const Shape&) { return step.shape = {random.once_in(4) ? 1 + random.below(plan.side) : plan.side, plan.side}, true; }
    bool loan(Step& step, const Shape& none) {
        sizes(step, none);
        step.p[0] = random.below(static_cast<std::int64_t>(player.buffer.size()) - step.shape[0] * step.shape[1] + 1);
        return player.lent.size() < kBorrows;
    }
    bool factor(Step& step, const Shape& a) {
        if (a.size() != 2 || a[0] * a[0] > largest()) return false;
        step.b = choose(player.operands(), [&](const Shape& b) { return b.size() == 2 && b[0] == a[1] && a[0] * b[1] <= largest(); });
        return true;
    }
    bool dim(Step& step, const Shape& a) { return step.p[0] = random.below(static_cast<std::int64_t>(a.size())), true; }
    bool range(Step& step, const Shape& a) {
        dim(step, a);
        const std::int64_t size = a[static_cast<std::size_t>(step.p[0])];
        if (size == 0) return false;
        const std::int64_t from = random.below(size), to = random.once_in(40) ? from : from + 1 + random.below(size - from);
        const bool backwards = random.once_in(5);
        step.p[1] = backwards ? to - 1 : from;
        step.p[2] = !backwards ? to : from > 0 ? from - 1 : -1 - size;
        step.p[3] = backwards ? -1 : 1 + random.below(4) / 3;
        return true;
    }
    bool order(Step& step, const Shape& a) { return step.shape = a.size() == 2 ? Shape{1, 0} : step.p[0] % 2 ? Shape{2, 0, 1} : Shape{0, 2, 1}, true; }
    bool other_shape(Step& step, const Shape& a) {
        std::int64_t count = 1;
        for (const std::int64_t size : a) count *= size;
        const std::int64_t last = std::array{count, std::int64_t{2}, plan.side}[random.index(3)];
        if (last == 0 || count % last) return false;
        step.shape = last == count ? Shape{count} : Shape{count / last, last};
        if (count / last % 2 == 0 && random.once_in(4)) step.shape = {2, count / last / 2, last};
        return true;
    }
    bool part_of_loan(Step& step, const Shape&) {
        if (!plan.host_writes || player.lent.empty()) return false;
        step.p[0] = random.below(static_cast<std::int64_t>(player.lent.size()));
        const std::int64_t count = player.lent[static_cast<std::size_t>(step.p[0])].tensor.numel();
        step.p[2] = random.below(count);
        step.p[3] = 1 + random.below(count - step.p[2]);
        return true;
    }
    bool known_places(Step& step, const Shape&) { return player.places[static_cast<std::size_t>(step.p[0] %= kPlaces)].handle() != nullptr; }
    bool no_host_writes(Step&, const Shape&) { return !plan.host_writes; }

    Plan& plan;
    Random& random;
    const Player& player;
};

/// In [-4, 4].
double level(const Step& step) {
    return static_cast<double>(step.p[0] % 65 - 32) / 8;
}
/// At least 1.
double length(const Tensor& tensor, std::int64_t dim) {
    return static_cast<double>(std::max<std::int64_t>(1, tensor.shape()[static_cast<std::size_t>(dim)]));
}

using P = Player&;
using S = Step&;
using T = const Tensor&;
const Kind kKinds[] = {
    // new tensors
    {"data", 4, -1, false, true, [](P p, S s, T, T) { return p.born_with_data(s); }, &Draw::sizes},
    {"borrow", 3, -1, false, true, [](P p, S s, T, T) { return p.borrow(s); }, &Draw::loan},
    {"full", 3, -1, false, true, [](P p, S s, T, T) { return p.counted(ops::full(s.shape, level(s), DataType::Float32, p.place(s))); }, &Draw::sizes},
    {"arange", 2, -1, false, true, [](P p, S s, T, T) { return p.counted(ops::arange(-4.0, level(s), 0.125, DataType::Float32, p.place(s))); }},
    // new values
    {"add", 6, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::add(a, b), 0.97); }},
    {"sub", 5, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::sub(a, b), 0.97); }},
    {"mul", 5, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::mul(a, b), 0.48); }},
    {"maximum", 4, 0, true, true, [](P p, S, T a, T b) { return p.counted(ops::maximum(a, b)); }},
    {"relu", 2, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::relu(a)); }},
    {"abs", 2, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::abs(a)); }},
    {"copy", 3, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::copy(a)); }},
    {"matmul", 14, 2, false, true, [](P p, S, T a, T b) { return p.folded(ops::matmul(a, b.handle() ? b : a.permute({1, 0})), 1 / length(a, 1)); },
     &Draw::factor},
    {"sum", 4, 1, false, true, [](P p, S s, T a, T) { return p.folded(ops::sum(a, Shape{s.p[0]}, s.p[1] % 2), 2 / length(a, s.p[0])); }, &Draw::dim},
    // views
    {"slice", 6, 1, false, true, [](P, S s, T a, T) { return ops::slice(a, s.p[0], s.p[1], s.p[2], s.p[3]); }, &Draw::range},
    {"select", 3, 1, false, true, [](P, S s, T a, T) { return ops::select(a, s.p[0], s.p[1]); }, &Draw::range},
    {"permute", 4, 2, false, true, [](P, S s, T a, T) { return a.permute(s.shape); }, &Draw::order},
    {"reshape", 4, 0, false, true, [](P, S s, T a, T) { return a.reshape(s.shape); }, &Draw::other_shape},
    // in place
    {"add_", 9, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::add_(a, b), 0.97); }},
    {"sub_", 5, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::sub_(a, b), 0.97); }},
    {"mul_", 6, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::mul_(a, b), 0.48); }},
    {"maximum_", 4, 0, true, false, [](P p, S, T a, T b) { return p.counted(ops::maximum_(a, b)); }},
    {"relu_", 2, 0, false, false, [](P p, S, T a, T) { return p.counted(ops::relu_(a)); }},
    {"copy_", 9, 0, true, false, [](P p, S, T a, T b) { return p.counted(ops::copy_(a, b)); }},
    {"host", 4, -1, false, false, [](P p, S s, T, T) { return p.host_write(s), Tensor(); }, &Draw::part_of_loan},
    // reads
    {"nonzero", 2, 1, false, false, [](P p, S s, T a, T) { return p.find_places(s, a), Tensor(); }},
    {"places", 3, -1, false, false, [](P p, S s, T, T) { return p.read_places(s), Tensor(); }, &Draw::known_places},
    {"read", 5, 0, false, false, [](P p, S s, T a, T) { return p.read(s, a.item_as_vec<float>()), Tensor(); }},
    {"callback", 5, 0, true, false, [](P p, S s, T a, T b) { return p.call_back(s, p.folded(ops::add(a, b), 0.97), true), Tensor(); }},
    {"peek", 3, 0, false, false, [](P p, S s, T a, T) { return p.call_back(s, a, false), Tensor(); }, &Draw::no_host_writes},
    {"poke", 5, 0, false, false, [](P p, S s, T a, T) { return p.poke(a, s.p[0] % 7), Tensor(); }},
    {"drop", 5, 0, false, false, [](P p, S s, T, T) { return p.slots[s.a] = Tensor(); }},
};

Step Draw::step() {
    static const int total = std::accumulate(std::begin(kKinds), std::end(kKinds), 0, [](int sum, const Kind& kind) { return sum + kind.weight; });
    for (;;) {
        auto left = random.below(total);
        const Kind* kind = kKinds;
        while ((left -= kind->weight) >= 0) ++kind;
        Step step;
        step.kind = kind;
        for (std::int64_t& p : step.p) p = random.below(1'000'000);
        if (kind->makes) step.out = random.index(kSlots);
        Shape shape;
        if (kind->rank >= 0) {
            step.a = choose(kSlots, [&](const Shape& a) { return a.size() >= static_cast<std::size_t>(kind->rank); });
            if (step.a == kNone) continue;
            shape = player.operand(step.a).shape();
        }
        if (kind->second) {
            step.b = choose(player.operands(), [&](const Shape& b) {
                return b.size() <= shape.size() && std::equal(b.rbegin(), b.rend(), shape.rbegin(), [](auto from, auto to) { return from == 1 || from == to; });
            });
        }
        if (!kind->choose || (this->*kind->choose)(step, shape)) return step;
    }
}

/// Plays a program as it is drawn.  In a baton round (no `only`) the thread changes every few steps; each keeps its stream and mode for a while.
void draw_program(Plan& plan, Program& program, Player& oracle, std::size_t threads, std::size_t only) {
    Random& random = plan.random;
    Draw draw(plan, oracle);
    std::vector<Step> settings(threads);
    std::size_t thread = only == kNone ? 0 : only;
    for (std::size_t i = 0; i < plan.steps; ++i) {
        if (only == kNone && random.once_in(3)) thread = random.index(threads);
        Step& own = settings[thread];
        if (random.once_in(6)) own.stream = random.once_in(3) ? kNone : random.index(kStreams);
        if (random.once_in(own.mode == Mode::Tracing ? 12 : 6)) own.mode = std::array{Mode::Tracing, Mode::Eager, Mode::Eager}[random.index(3)];
        Step& step = program.steps.emplace_back(draw.step());
        step.number = i;
        step.thread = thread;
        step.stream = random.once_in(60) ? kStreams : own.stream;
        step.mode = random.once_in(60) ? Mode::Synchronous : own.mode;
        oracle.play(step);
    }
}

// ---- rounds ----------------------------------------------------------------------------------------------------------

/// Some of them deferred, so that several threads submit them at once.
std::vector<Tensor> shared_inputs(const Plan& plan, const std::vector<Stream>& streams) {
    const bool oracle = streams.empty();
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < kShared && !plan.baton; ++i) {
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        if (!oracle) stream.emplace(streams[i]);
        if (!oracle && i % 2) tracing.emplace();
        const std::int64_t n = plan.side;
        const Tensor data = Tensor::from_data(random_values(plan.input_seed + static_cast<std::int64_t>(i), n * n).data(), {n, n});
        inputs.push_back(ops::maximum(ops::mul(ops::matmul(data, data), -1.0 / static_cast<double>(n)), -4));
    }
    return inputs;
}

/// False when the run left the oracle; then it was told.
bool play_round(std::uint64_t seed, std::size_t threads, Totals& totals) {
    const std::int64_t memory = clikart_memory_current();
    Plan plan(seed);
    std::deque<Program> programs(plan.baton ? 1 : threads);
    Verdict verdict;
    {
        const SynchronousStreamScope synchronous;
        Totals uncounted;
        Surroundings around{{}, shared_inputs(plan, {}), verdict, uncounted};
        for (std::size_t i = 0; i < programs.size(); ++i) {
            Player oracle(programs[i], around, true, plan);
            draw_program(plan, programs[i], oracle, threads, plan.baton ? kNone : i);
            oracle.finish();
        }
    }
    Surroundings around{{}, {}, verdict, totals};
    for (std::size_t i = 0; i < kStreams; ++i) around.streams.push_back(Stream::create(Device::cpu()));
    around.streams.push_back(Stream::default_stream(Device::cpu()));
    around.inputs = shared_inputs(plan, around.streams);
    std::deque<Player> players;
    for (Program& program : programs) players.emplace_back(program, around, false, plan);
    std::mutex baton;
    std::vector<std::condition_variable> turned(threads);
    std::size_t next = 0;  // step
    std::vector<std::thread> crew;
    for (std::size_t t = 0; t < threads; ++t) {
        crew.emplace_back([&, t] {
            std::deque<Step>& steps = programs[plan.baton ? 0 : t].steps;
            for (std::size_t i = 0; i < steps.size(); ++i) {
                if (steps[i].thread != t) continue;
                std::unique_lock<std::mutex> turn;
                if (plan.baton) turned[t].wait(turn = std::unique_lock(baton), [&] { return next == i; });
                if (!verdict.failed()) players[plan.baton ? 0 : t].play(steps[i]);
                if (plan.baton && ++next < steps.size()) turned[steps[next].thread].notify_one();
            }
        });
    }
    for (std::thread& thread : crew) thread.join();
    for (Player& player : players) {
        if (!verdict.failed()) player.finish();
    }
    totals.callbacks.wait();
    for (Player& player : players) player.let_go();
    around.inputs.clear();
    totals.borrows.wait();
    clikart_drain();
    // Callbacks may still be about to let go of what they held.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (clikart_memory_current() != memory && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    if (const std::int64_t kept = clikart_memory_current() - memory) verdict.fail(programs[0], plan.steps, "kept " + std::to_string(kept) + " bytes");
    if (!verdict.failed()) return true;
    std::fprintf(stderr, "%s round, side %d, seed %llu:\n", plan.baton ? "baton" : "private", static_cast<int>(plan.side),
                 static_cast<unsigned long long>(seed));
    verdict.print();
    return false;
}

}  // namespace

int main(int argc, char** argv) {
    double seconds = 0;
    long long limit = 0, rounds = 0;
    bool expect_mismatch = false, same = true;
    std::size_t threads = 4;
    auto seed = static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count());
    for (int i = 1; i < argc; ++i) {
        const std::string_view name = argv[i];
        if (name == "--expect-mismatch") expect_mismatch = true;
        if (i + 1 == argc) break;
        if (name == "--seconds") seconds = std::atof(argv[++i]);
        if (name == "--rounds") limit = std::atoll(argv[++i]);
        if (name == "--threads") threads = static_cast<std::size_t>(std::max(1, std::atoi(argv[++i])));
        if (name == "--seed") seed = std::strtoull(argv[++i], nullptr, 10);
    }
    if (seconds <= 0 && limit <= 0) seconds = 10;
    std::printf("stress: seed %llu, %zu threads\n", seed, threads);
    std::fflush(stdout);
    Totals totals;
    const auto begin = std::chrono::steady_clock::now();
    const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
    const unsigned long long first = seed;
    while (same && (limit <= 0 || rounds < limit) && (seconds <= 0 || elapsed() < seconds)) {
        std::future<bool> round = std::async(std::launch::async, [&] { return play_round(seed, threads, totals); });
        const bool over = round.wait_for(kHang) == std::future_status::ready;
        same = over && round.get();
        ++rounds;
        if (!same) std::fprintf(stderr, "%sreplay: %s --seed %llu --threads %zu --rounds 1\n", over ? "" : "a round does not end; ", argv[0], seed, threads);
        if (!over) std::_Exit(1);
        seed = Random(seed).engine();
    }
    const long long promised = totals.callbacks.promised, fired = totals.callbacks.kept;
    std::printf("stress: seed %llu, %lld rounds, %lld operators, %lld callbacks registered, %lld fired, %.1f s\n", first, rounds,
                static_cast<long long>(totals.operators), promised, fired, elapsed());
    return (same && promised == fired) == expect_mismatch;
}
