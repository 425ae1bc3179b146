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
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
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

class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::uint64_t next() { return engine_(); }
    /// 0 ... n - 1
    std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(n)); }
    std::size_t index(std::size_t n) { return static_cast<std::size_t>(engine_() % n); }
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

/// What a round is like.
struct Plan {
    explicit Plan(std::uint64_t seed) : random(seed) {
        constexpr std::int64_t sides[] = {3, 16, 16, 48, 48, 80, 96, 128, 256};
        side = sides[random.index(std::size(sides))];
        steps = side > 100 ? 60 + random.index(120) : 100 + random.index(300);
        baton = !random.once_in(3);
        host_writes = random.once_in(3);
        input_seed = random.below(1'000'000);
    }
    Random random;
    std::int64_t side;  // of its matrices: the larger ones keep streams busy, the small ones run on the caller
    std::size_t steps;
    bool baton;
    bool host_writes;  // then no callback may read borrowed memory at any time
    std::int64_t input_seed;
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

class Player;
class Draw;
struct Kind {
    const char* name;
    int weight;
    int rank;     // operand a has at least so many dimensions; -1: there is none
    bool second;  // operand b broadcasts to a
    bool makes;   // a tensor for a slot
    /// Runs it.
    Tensor (*act)(Player&, Step&, const Tensor& a, const Tensor& b);
    /// Draws what is left to choose; false when it does not fit.
    bool (*choose)(Draw&, Step&, const Shape& a) = [](Draw&, Step&, const Shape&) { return true; };
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
        const auto differs = [&](std::size_t i) { return std::memcmp(&got[i], &expected[i], sizeof got[i]) != 0; };
        std::size_t i = 0;
        while (i < std::min(got.size(), expected.size()) && !differs(i)) ++i;
        if (i == got.size() && i == expected.size()) return;
        const auto value = [i](const std::vector<float>& values) { return i < values.size() ? values[i] : std::nanf(""); };
        char text[160];
        std::snprintf(text, sizeof text, ": element %zu of %zu (of %zu) is %.9g, not %.9g", i, got.size(), expected.size(), value(got), value(expected));
        fail(program, step, what + text);
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
    std::int64_t kept() const { return kept_; }

private:
    std::atomic<std::int64_t> promised_{0}, kept_{0};
    std::mutex mutex_;
    std::condition_variable changed_;
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
class Player {
public:
    Player(Program& program, Surroundings& around, bool oracle, const Plan& plan)
        : program_(program), around_(around), oracle_(oracle), calls_(plan.steps), buffer(random_values(plan.side, 3 * plan.side * plan.side)) {}
    ~Player() { around_.totals.operators += operators_; }
    Player(const Player&) = delete;
    Player& operator=(const Player&) = delete;

    void play(Step& step) {
        if (oracle_) return act(step);
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        std::optional<SynchronousStreamScope> synchronous;
        if (step.stream != kNone) stream.emplace(around_.streams[step.stream]);
        if (step.mode == Mode::Tracing) tracing.emplace();
        if (step.mode == Mode::Synchronous) synchronous.emplace();
        try {
            act(step);
        } catch (const std::exception& error) {
            around_.verdict.fail(program_, step.number, std::string("threw ") + error.what());
        }
    }
    /// Notes or compares all that can still be reached.
    void finish() {
        program_.slots.resize(kSlots);
        for (std::size_t i = 0; i < kSlots; ++i) {
            if (slots[i].handle()) note(slots[i].item_as_vec<float>(), program_.slots[i], program_.steps.size(), "tensor " + std::to_string(i) + " at the end");
        }
        for (const Lent& each : lent) each.tensor.synchronize();  // deferred writes to memory that no slot reaches
        note(buffer, program_.buffer, program_.steps.size(), "borrowed memory at the end");
    }
    void let_go() {
        for (std::size_t i = 0; i < calls_.size(); ++i) {
            if (calls_[i] > 1) around_.verdict.fail(program_, i, "the callback was called more than once");
        }
        slots.fill({});
        places.fill({});
        lent.clear();
    }
    const Tensor& operand(std::size_t number) const { return number < kSlots ? slots[number] : around_.inputs[number - kSlots]; }
    std::size_t operands() const { return kSlots + around_.inputs.size(); }

    // For the table of kinds.

    Tensor counted(Tensor result) {
        ++operators_;
        return result;
    }
    /// Keeps values within [-4, 4] without drawing them together: a tent, which tells apart what was close.
    Tensor folded(const Tensor& x, double scale) {
        operators_ += 5;
        return ops::maximum(ops::add(ops::mul(ops::abs(x), -scale), 3.9), -4);
    }
    Tensor fold(const Tensor& x, double scale) {
        operators_ += 5;
        ops::abs_(x);
        ops::mul_(x, -scale);
        ops::add_(x, 3.9);
        return ops::maximum_(x, -4);
    }
    void read(Step& step, const std::vector<float>& values) { note(values, step.expected, step.number, "read"); }
    void call_back(Step& step, const Tensor& tensor, bool frozen) {
        if (oracle_) return read(step, tensor.item_as_vec<float>());
        around_.totals.callbacks.promise();
        tensor.on_complete([this, &step, frozen](const Tensor& settled) {
            ++calls_[step.number];
            try {
                const std::vector<float> values = (step.p[1] % 3 ? settled : ops::copy(settled)).item_as_vec<float>();
                if (frozen) read(step, values);
            } catch (const std::exception& error) {
                around_.verdict.fail(program_, step.number, std::string("the callback threw ") + error.what());
            }
            around_.totals.callbacks.keep();
        });
    }
    Tensor borrow(const Step& step) {
        Tally& borrows = around_.totals.borrows;
        borrows.promise();
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
        switch (oracle_ ? 0 : how) {
            case 1: a.wait_for(std::chrono::microseconds(20)); break;
            case 2: a.synchronize(); break;
            case 3: a.stream().query_idle(); break;
            case 4: around_.streams[0].synchronize(); break;
            case 5: a.is_ready(); break;
            case 6: a.status(); break;
            case 7: clikart_memory_trim(); break;
            default: a.start();
        }
    }
    /// Sometimes a stream, which the oracle need not know.
    StreamOrDevice place(const Step& step) const {
        return oracle_ || step.p[1] % 2 ? StreamOrDevice() : StreamOrDevice(around_.streams[static_cast<std::size_t>(step.p[2]) % kStreams]);
    }

private:
    void act(Step& step) {
        const Tensor a = step.a == kNone ? Tensor() : operand(step.a), b = step.b == kNone ? Tensor() : operand(step.b);
        Tensor out = step.kind->act(*this, step, a, b);
        if (step.out != kNone) slots[step.out] = std::move(out);
    }
    void note(const std::vector<float>& values, std::vector<float>& expected, std::size_t step, const std::string& what) {
        if (oracle_) {
            expected = values;
        } else {
            around_.verdict.compare(program_, step, what, values, expected);
        }
    }

    Program& program_;
    Surroundings& around_;
    const bool oracle_;
    std::vector<std::atomic<int>> calls_;  // of the callback of each step
    std::int64_t operators_ = 0;

public:
    struct Lent {
        Tensor tensor;
        std::int64_t offset;
    };
    std::array<Tensor, kSlots> slots;
    std::array<Tensor, kPlaces> places;
    std::vector<float> buffer;  // lent out in overlapping pieces
    std::vector<Lent> lent;     // all to the end, so that no deferred write to the memory ends with its tensor
};

// ---- drawing ---------------------------------------------------------------------------------------------------------

/// Draws steps that fit the tensors a player has.
class Draw {
public:
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
    bool choose_sizes(Step& step) {
        step.shape = {random.once_in(4) ? 1 + random.below(plan.side) : plan.side, plan.side};
        return true;
    }
    bool choose_dim(Step& step, const Shape& shape) {
        step.p[0] = random.below(static_cast<std::int64_t>(shape.size()));
        return true;
    }
    bool choose_range(Step& step, const Shape& shape) {
        choose_dim(step, shape);
        const std::int64_t size = shape[static_cast<std::size_t>(step.p[0])];
        if (size == 0) return false;
        const std::int64_t from = random.below(size), to = random.once_in(40) ? from : from + 1 + random.below(size - from);
        const bool backwards = random.once_in(5);
        step.p[1] = backwards ? to - 1 : from;
        step.p[2] = !backwards ? to : from > 0 ? from - 1 : -1 - size;
        step.p[3] = backwards ? -1 : 1 + random.below(4) / 3;
        return true;
    }
    bool choose_reshape(Step& step, const Shape& shape) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        const std::int64_t last = std::array{count, std::int64_t{2}, plan.side}[random.index(3)];
        if (last == 0 || count % last) return false;
        step.shape = last == count ? Shape{count} : Shape{count / last, last};
        if (count / last % 2 == 0 && random.once_in(4)) step.shape = {2, count / last / 2, last};
        return true;
    }
    bool choose_host_write(Step& step) {
        if (!plan.host_writes || player.lent.empty()) return false;
        step.p[0] = random.below(static_cast<std::int64_t>(player.lent.size()));
        const std::int64_t count = player.lent[static_cast<std::size_t>(step.p[0])].tensor.numel();
        step.p[2] = random.below(count);
        step.p[3] = 1 + random.below(count - step.p[2]);
        return true;
    }

    Plan& plan;
    Random& random;
    const Player& player;
};

using P = Player&;
using S = Step&;
using T = const Tensor&;
const Kind kKinds[] = {
    // new tensors
    {"data", 4, -1, false, true, [](P, S s, T, T) { return Tensor::from_data(random_values(s.p[0], s.shape[0] * s.shape[1]).data(), s.shape); },
     [](Draw& draw, S s, const Shape&) { return draw.choose_sizes(s); }},
    {"full", 3, -1, false, true,
     [](P p, S s, T, T) { return p.counted(ops::full(s.shape, static_cast<double>(s.p[0] % 65 - 32) / 8, DataType::Float32, p.place(s))); },
     [](Draw& draw, S s, const Shape&) { return draw.choose_sizes(s); }},
    {"arange", 2, -1, false, true, [](P p, S s, T, T) {
         return p.counted(ops::arange(-2.0, static_cast<double>(s.p[0] % 48 - 15) / 8, 0.125, DataType::Float32, p.place(s)));
     }},
    {"borrow", 3, -1, false, true, [](P p, S s, T, T) { return p.borrow(s); },
     [](Draw& draw, S s, const Shape&) {
         draw.choose_sizes(s);
         s.p[0] = draw.random.below(static_cast<std::int64_t>(draw.player.buffer.size()) - s.shape[0] * s.shape[1] + 1);
         return draw.player.lent.size() < kBorrows;
     }},
    // new values
    {"add", 6, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::add(a, b), 0.97); }},
    {"sub", 5, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::sub(a, b), 0.97); }},
    {"mul", 5, 0, true, true, [](P p, S, T a, T b) { return p.folded(ops::mul(a, b), 0.48); }},
    {"maximum", 4, 0, true, true, [](P p, S, T a, T b) { return p.counted(ops::maximum(a, b)); }},
    {"relu", 2, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::relu(a)); }},
    {"abs", 2, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::abs(a)); }},
    {"copy", 3, 0, false, true, [](P p, S, T a, T) { return p.counted(ops::copy(a)); }},
    {"matmul", 14, 2, false, true, [](P p, S, T a, T b) { return p.folded(ops::matmul(a, b.handle() ? b : a.permute({1, 0})), share(a.shape()[1])); },
     [](Draw& draw, S s, const Shape& a) {
         s.b = draw.choose(draw.player.operands(), [&](const Shape& b) { return b.size() == 2 && b[0] == a[1]; });
         return a.size() == 2;
     }},
    {"sum", 4, 1, false, true,
     [](P p, S s, T a, T) { return p.folded(ops::sum(a, Shape{s.p[0]}, s.p[1] % 2), 2 * share(a.shape()[static_cast<std::size_t>(s.p[0])])); },
     [](Draw& draw, S s, const Shape& a) { return draw.choose_dim(s, a); }},
    // views
    {"slice", 6, 1, false, true, [](P, S s, T a, T) { return ops::slice(a, s.p[0], s.p[1], s.p[2], s.p[3]); },
     [](Draw& draw, S s, const Shape& a) { return draw.choose_range(s, a); }},
    {"select", 3, 1, false, true, [](P, S s, T a, T) { return ops::select(a, s.p[0], s.p[1]); },
     [](Draw& draw, S s, const Shape& a) { return draw.choose_range(s, a); }},
    {"permute", 4, 2, false, true, [](P, S s, T a, T) { return a.permute(s.shape); },
     [](Draw&, S s, const Shape& a) {
         s.shape = a.size() == 2 ? Shape{1, 0} : s.p[0] % 2 ? Shape{2, 0, 1} : Shape{0, 2, 1};
         return true;
     }},
    {"reshape", 4, 0, false, true, [](P, S s, T a, T) { return a.reshape(s.shape); },
     [](Draw& draw, S s, const Shape& a) { return draw.choose_reshape(s, a); }},
    // in place
    {"add_", 9, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::add_(a, b), 0.97); }},
    {"sub_", 5, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::sub_(a, b), 0.97); }},
    {"mul_", 6, 0, true, false, [](P p, S, T a, T b) { return p.fold(ops::mul_(a, b), 0.48); }},
    {"maximum_", 4, 0, true, false, [](P p, S, T a, T b) { return p.counted(ops::maximum_(a, b)); }},
    {"relu_", 2, 0, false, false, [](P p, S, T a, T) { return p.counted(ops::relu_(a)); }},
    {"copy_", 9, 0, true, false, [](P p, S, T a, T b) { return p.counted(ops::copy_(a, b)); }},
    {"host", 4, -1, false, false, [](P p, S s, T, T) { return p.host_write(s), Tensor(); },
     [](Draw& draw, S s, const Shape&) { return draw.choose_host_write(s); }},
    // reads
    {"nonzero", 2, 1, false, false, [](P p, S s, T a, T) {
         const EagerScope eager;  // it has to be, inside of a TracingScope
         return p.places[static_cast<std::size_t>(s.p[0]) % kPlaces] = p.counted(ops::nonzero(a));
     }},
    {"places", 3, -1, false, false,
     [](P p, S s, T, T) {
         const Tensor& places = p.places[static_cast<std::size_t>(s.p[0]) % kPlaces];
         std::vector<float> values{static_cast<float>(places.shape()[0])};
         for (const std::int64_t place : places.item_as_vec<std::int64_t>()) values.push_back(static_cast<float>(place));
         return p.read(s, values), Tensor();
     },
     [](Draw& draw, S s, const Shape&) { return draw.player.places[static_cast<std::size_t>(s.p[0]) % kPlaces].handle() != nullptr; }},
    {"read", 5, 0, false, false, [](P p, S s, T a, T) { return p.read(s, a.item_as_vec<float>()), Tensor(); }},
    {"callback", 5, 0, true, false, [](P p, S s, T a, T b) {  // of a value that nobody writes any more
         const Tensor last = p.folded(ops::add(a, b), 0.97);
         return p.call_back(s, a.shape().size() == 2 && s.p[0] % 2 ? last.permute({1, 0}) : last, true), Tensor();
     }},
    {"peek", 3, 0, false, false, [](P p, S s, T a, T) { return p.call_back(s, a, false), Tensor(); },
     [](Draw& draw, S, const Shape&) { return !draw.plan.host_writes; }},
    {"poke", 5, 0, false, false, [](P p, S s, T a, T) { return p.poke(a, s.p[0] % 8), Tensor(); }},
    {"drop", 5, 0, false, false, [](P p, S s, T, T) { return p.slots[s.a] = Tensor(); }},
};

Step Draw::step() {
    static const int total = [] {
        int sum = 0;
        for (const Kind& kind : kKinds) sum += kind.weight;
        return sum;
    }();
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
        if (kind->choose(*this, step, shape)) return step;
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

class Baton {
public:
    explicit Baton(std::size_t threads) : turned_(threads) {}
    void await(const Step& step) {
        std::unique_lock lock(mutex_);
        turned_[step.thread].wait(lock, [&] { return next_ == step.number; });
    }
    void pass_to(const Step& step) {
        std::lock_guard lock(mutex_);
        next_ = step.number;
        turned_[step.thread].notify_one();
    }

private:
    std::mutex mutex_;
    std::vector<std::condition_variable> turned_;
    std::size_t next_ = 0;
};

/// Some of them deferred, so that several threads submit them at once.
std::vector<Tensor> shared_inputs(const Plan& plan, const std::vector<Stream>& streams) {
    std::vector<Tensor> inputs;
    for (std::size_t i = 0; i < kShared && !plan.baton; ++i) {
        std::optional<StreamScope> stream;
        std::optional<TracingScope> tracing;
        if (!streams.empty()) stream.emplace(streams[i]);
        if (!streams.empty() && i % 2) tracing.emplace();
        const std::int64_t n = plan.side;
        const Tensor data = Tensor::from_data(random_values(plan.input_seed + static_cast<std::int64_t>(i), n * n).data(), {n, n});
        inputs.push_back(ops::maximum(ops::mul(ops::matmul(data, data), -share(n)), -4));
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
    Baton baton(threads);
    std::vector<std::thread> crew;
    for (std::size_t t = 0; t < threads; ++t) {
        crew.emplace_back([&, t] {
            std::deque<Step>& steps = programs[plan.baton ? 0 : t].steps;
            for (std::size_t i = 0; i < steps.size(); ++i) {
                if (steps[i].thread != t) continue;
                if (plan.baton) baton.await(steps[i]);
                if (!verdict.failed()) players[plan.baton ? 0 : t].play(steps[i]);
                if (plan.baton && i + 1 < steps.size()) baton.pass_to(steps[i + 1]);
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
    long long limit = 0;
    std::size_t threads = 4;
    auto seed = static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count());
    bool expect_mismatch = false;
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
    const auto in_time = [&](long long rounds) { return limit > 0 ? rounds < limit : elapsed() < seconds; };
    const unsigned long long first = seed;
    long long rounds = 0;
    bool same = true;
    while (same && in_time(rounds)) {
        std::future<bool> round = std::async(std::launch::async, [&] { return play_round(seed, threads, totals); });
        const bool over = round.wait_for(kHang) == std::future_status::ready;
        same = over && round.get();
        ++rounds;
        if (!same) std::fprintf(stderr, "%sreplay: %s --seed %llu --threads %zu --rounds 1\n", over ? "" : "a round does not end; ", argv[0], seed, threads);
        if (!over) std::_Exit(1);
        seed = Random(seed).next();
    }
    const long long promised = totals.callbacks.promised(), fired = totals.callbacks.kept();
    std::printf("stress: seed %llu, %lld rounds, %lld operators, %lld callbacks registered, %lld fired, %.1f s\n", first, rounds,
                static_cast<long long>(totals.operators), promised, fired, elapsed());
    return (same && promised == fired) == expect_mismatch;
}
