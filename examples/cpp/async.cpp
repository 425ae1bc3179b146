// Asynchronous execution, a chapter for each idea.  Run it: every chapter checks what it says.
//
//   g++ -std=c++20 -O2 async.cpp -o async $(pkg-config --cflags --libs clikart)
#include <ClikaRT/clika_rt.h>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <queue>
#include <thread>

using ClikaRT::Device;
using ClikaRT::Shape;
using ClikaRT::Stream;
using ClikaRT::Tensor;
namespace ops = ClikaRT::ops;

namespace {

void chapter(const char* title) {
    std::printf("\n== %s\n", title);
}

void check(bool holds) {
    if (holds) return;
    std::printf("what the chapter says does not hold\n");
    std::exit(1);
}

const char* name(Tensor::Status status) {
    return status == Tensor::Status::Unscheduled ? "Unscheduled" : status == Tensor::Status::Evaluated ? "Evaluated" : "Available";
}

/// Eight products of 1024 x 1024, none waited for; every element is 1/1024.
Tensor products(const Tensor& w) {
    Tensor y = w;
    for (int i = 0; i < 8; ++i) y = ops::matmul(y, w);
    return y;
}

void dispatch_is_not_execution(const Tensor& w) {
    chapter("A call returns at once, a read waits");
    const Tensor y = products(w);
    std::printf("dispatched: idle %d, ready %d, status %s\n", y.stream().query_idle(), y.is_ready(), name(y.status()));
    std::printf("a bare device resolves to the stream it rode: %d\n", ClikaRT::StreamOrDevice(Device::cpu()).resolve() == y.stream());
    std::printf("read: %.6f\n", static_cast<double>(ops::amax(y).item<float>()));
    check(y.is_ready());
}

void streams(const Tensor& w) {
    chapter("Streams run beside each other, and wait for each other's results");
    const Stream side = Stream::create(Device::cpu());
    const Tensor left = ops::full({512, 512}, 0.5, ClikaRT::DataType::Float32, side);  // a stream is used as given
    {
        const ClikaRT::StreamScope scope(side);
        check(ops::matmul(w, w).stream() == side);  // unplaced work goes there too
    }
    const Tensor both = ops::add(left, 0.25);  // back on the thread's lane; waits for `side` by itself
    check(both.stream() == Stream::current() && ops::amax(both).item<float>() == 0.75f);
    const Stream steady = Stream::default_stream(Device::cpu());
    check(ops::ones({64, 64}, ClikaRT::DataType::Float32, steady).is_ready());  // the synchronous one
    side.synchronize();
    std::printf("idle after synchronize: %d\n", side.query_idle());
}

void safe_reads() {
    chapter("Safe reads: which memory may be touched when");
    std::vector<float> memory{0, 1, 2, 3};
    const Tensor copied = Tensor::from_data(memory.data(), {4});  // the memory is ours again
    const Tensor borrowed = Tensor::borrow(memory.data(), {4});   // no copy
    const Tensor old = ops::mul(borrowed, 10);                    // reads the memory ...
    ops::add_(borrowed, 1);                                       // ... so this waits, and `old` keeps its values
    borrowed.synchronize();                                       // a look at the memory comes after this
    std::printf("memory %g, old %g, copied %g\n", static_cast<double>(memory[0]), static_cast<double>(old.item_as_vec<float>()[1]),
                static_cast<double>(copied.item_as_vec<float>()[3]));
    check(memory[3] == 4 && old.item_as_vec<float>()[3] == 30 && copied.item_as_vec<float>()[0] == 0);
    // The destructor of `borrowed` does not wait: the memory must live until the work is over.
    Stream::current().synchronize();
}

void callbacks(const Tensor& w) {
    chapter("React the moment a result is ready");
    std::mutex mutex;
    std::condition_variable changed;
    std::queue<Tensor> finished;
    for (int i = 0; i < 3; ++i) {
        ops::add(products(w), i).on_complete([&](const Tensor& result) {  // on the callback pool
            const std::lock_guard lock(mutex);
            finished.push(result);
            changed.notify_one();
        });
    }
    for (int i = 0; i < 3; ++i) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return !finished.empty(); });
        std::printf("finished: %s\n", finished.front().to_string().c_str());
        finished.pop();
    }
    bool at_once = false;
    const Tensor settled = ops::ones({2});
    settled.synchronize();
    settled.on_complete([&](const Tensor&) { at_once = true; });  // here and now
    check(at_once);
}

void lookahead() {
    chapter("A decode loop with one step of lookahead");
    const std::int64_t n = 16;
    std::vector<float> next(static_cast<std::size_t>(n * n), 0.0f), first(static_cast<std::size_t>(n), 0.0f);
    for (std::int64_t i = 0; i < n; ++i) next[static_cast<std::size_t>(i * n + (i + 1) % n)] = 1;
    first[0] = 1;
    const Tensor table = Tensor::from_data(next.data(), {n, n});
    Tensor state = Tensor::from_data(first.data(), {1, n}), token = ops::argmax(state, Shape{-1});
    for (int i = 0; i < 10; ++i) {
        state = ops::matmul(state, table);
        const Tensor following = ops::argmax(state, Shape{-1});                    // on its way ...
        std::printf("%lld ", static_cast<long long>(token.item<std::int64_t>()));  // ... while this one is read
        token = following;
    }
    check(token.item<std::int64_t>() == 10);
    std::printf("\n");
}

void synchronously(const Tensor& w) {
    chapter("Step by step: SynchronousStreamScope");
    {
        const ClikaRT::SynchronousStreamScope scope(Stream::current());
        std::printf("ready when the call returns: %d\n", ops::matmul(w, w).is_ready());
    }
    std::printf("and outside: %d\n", ops::matmul(w, w).is_ready());
}

void tracing(const Tensor& w) {
    chapter("First say all, then run it: TracingScope");
    Tensor a, b;
    {
        const ClikaRT::TracingScope trace;
        a = ops::matmul(w, w);
        b = ops::add(a, 1);
        std::printf("traced: a=%s b=%s\n", name(a.status()), name(b.status()));
    }
    b.synchronize();
    std::printf("realized: a=%s b=%s\n", name(a.status()), name(b.status()));
}

void failures() {
    chapter("Failures belong to results");
    ClikaRT::set_tag("async.cpp, failures");
    const Tensor bad = ops::full({std::int64_t{1} << 50}, 1.0), good = ops::ones({2});
    try {
        ops::exp(bad).synchronize();
    } catch (const ClikaRT::MemoryError& error) {
        const std::string text = error.what();
        std::printf("full: out of memory ... %s\n", text.substr(text.find("called at")).c_str());
    }
    check(ops::sum(good).item<float>() == 2);
    ClikaRT::set_tag("");
}

}  // namespace

int main() {
    const Tensor w = ops::full({1024, 1024}, 1.0 / 1024);
    dispatch_is_not_execution(w);
    streams(w);
    safe_reads();
    callbacks(w);
    lookahead();
    synchronously(w);
    tracing(w);
    failures();
    return 0;
}
