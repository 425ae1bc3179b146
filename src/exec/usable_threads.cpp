#include "exec/usable_threads.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

namespace clikart {
namespace {

int affinity() noexcept {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

constexpr double kNoQuota = 1e9;

/// CPUs that the files of one control group allow.
double quota_of(const std::string& folder, bool v2) {
    double quota = -1, period = 0;
    if (v2) {
        std::string first;  // "max 100000" or "50000 100000"
        std::ifstream(folder + "/cpu.max") >> first >> period;
        if (!first.empty() && first != "max") quota = std::atof(first.c_str());
    } else {
        std::ifstream(folder + "/cpu.cfs_quota_us") >> quota;
        std::ifstream(folder + "/cpu.cfs_period_us") >> period;
    }
    return quota > 0 && period > 0 ? quota / period : kNoQuota;
}

double quota() {
    double least = kNoQuota;
    std::ifstream groups("/proc/self/cgroup");  // "0::/a/b" (v2) and "4:cpu,cpuacct:/a/b" (v1)
    for (std::string line; std::getline(groups, line);) {
        const size_t colon = line.find(':'), second = line.find(':', colon + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = "," + line.substr(colon + 1, second - colon - 1) + ",";
        const bool v2 = controllers == ",,";
        if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
        std::string path = line.substr(second + 1);
        for (;;) {  // the group and those above; inside a container the mount shows only its own
            if (path == "/") path.clear();
            for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"}) least = std::min(least, quota_of(root + path, v2));
            if (path.empty()) break;
            path.resize(std::max<size_t>(path.rfind('/'), 0));
        }
    }
    return least;
}

}  // namespace

int usable_threads() noexcept {
    try {
        if (const char* wish = std::getenv("CLIKA_NUM_THREADS")) {
            const std::string_view text(wish);
            int threads = 0;
            const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
            if (error == std::errc() && rest == text.data() + text.size() && threads > 0) return threads;
        }
        return static_cast<int>(std::clamp(std::ceil(quota()), 1.0, double(affinity())));
    } catch (...) {
        return affinity();
    }
}

}  // namespace clikart
