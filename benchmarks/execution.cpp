// Two streams against one, and the latency of callbacks; one line of JSON.  benchmarks/execution.py runs it.
#include <ClikaRT/clika_rt.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

using namespace ClikaRT;

namespace {

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Seconds for 4,000 kernels of one piece each (a piece is 32 Ki elements), in turns over the streams.
double run(const std::vector<Stream>& streams) {
    std::vector<Tensor> x;
    for (const Stream& stream : streams) x.push_back(ops::full({32 * 1024}, 0.5, DataType::Float32, stream));
    for (const Tensor& t : x) t.synchronize();
    const double start = now();
    for (int i = 0; i < 4000; ++i) {
        const std::size_t k = static_cast<std::size_t>(i) % streams.size();
        const StreamScope scope(streams[k]);
        ops::tanh_(x[k]);
    }
    for (const Tensor& t : x) t.synchronize();
    return now() - start;
}

}  // namespace

int main() {
    const std::vector<Stream> one{Stream::create(Device::cpu())}, two{Stream::create(Device::cpu()), Stream::create(Device::cpu())};
    double best_one = 1e9, best_two = 1e9;
    for (int round = 0; round < 15; ++round) {
        best_one = std::min(best_one, run(one));
        best_two = std::min(best_two, run(two));
    }

    // From the call to its callback, and to the return of a wait for it; the difference is what the callback takes longer.
    std::vector<double> to_callback, to_wait;
    const Tensor w = ops::full({256, 256}, 1.0 / 256);
    for (int i = 0; i < 2000; ++i) {
        double start = now();
        ops::matmul(w, w).synchronize();
        to_wait.push_back((now() - start) * 1e6);
        std::atomic<double> called{0};
        start = now();
        ops::matmul(w, w).on_complete([&](const Tensor&) { called = now(); });
        while (called == 0) std::this_thread::yield();
        to_callback.push_back((called - start) * 1e6);
    }
    const auto at = [](std::vector<double>& list, double share) {
        std::sort(list.begin(), list.end());
        return list[static_cast<std::size_t>(static_cast<double>(list.size() - 1) * share)];
    };
    std::printf("{\"two_streams\": %.3f, \"wait_median_us\": %.1f, \"callback_median_us\": %.1f, \"callback_p99_us\": %.1f}\n", best_one / best_two,
                at(to_wait, 0.5), at(to_callback, 0.5), at(to_callback, 0.99));
    return 0;
}
