#include "ops/profile.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "exec/fork.h"

namespace clikart::profile {
namespace {

struct Event {
    std::string name;
    int32_t node, thread;
    int64_t bytes, begin, end;  // the last two in nanoseconds
    Ref<Origin> place;
};

std::mutex& mutex = []() -> std::mutex& {  // guards events
    auto& made = *new std::mutex;
    hold_at_fork(made);
    return made;
}();
auto& events = *new std::vector<Event>;

int64_t now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int32_t number_of_thread() noexcept {
    static std::atomic<int32_t> next{1};
    thread_local const int32_t number = next.fetch_add(1, std::memory_order_relaxed);
    return number;
}

}  // namespace

void begin() {
    if (wanted.exchange(true)) fail(ErrorKind::Runtime, "profile: what runs is noted already");
    std::vector<Event> before;  // released after the lock
    std::lock_guard lock(mutex);
    std::swap(before, events);
}

void end(const std::string& path) {
    if (!wanted.exchange(false)) fail(ErrorKind::Runtime, "profile: nothing is noted");
    std::vector<Event> all;
    {
        std::lock_guard lock(mutex);
        std::swap(all, events);
    }
    nlohmann::json list = nlohmann::json::array();
    const int64_t first = all.empty() ? 0 : std::min_element(all.begin(), all.end(), [](const Event& a, const Event& b) { return a.begin < b.begin; })->begin;
    for (const Event& event : all) {
        nlohmann::json arguments{{"bytes", event.bytes}};
        if (event.node >= 0) arguments["node"] = event.node;
        if (event.place && event.place->text()) arguments["place"] = *event.place->text();
        const auto microseconds = [](int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; };
        list.push_back({{"name", event.name},
                        {"cat", event.node >= 0 ? "graph" : "eager"},
                        {"ph", "X"},
                        {"pid", 1},
                        {"tid", event.thread},
                        {"ts", microseconds(event.begin - first)},
                        {"dur", microseconds(event.end - event.begin)},
                        {"args", std::move(arguments)}});
    }
    std::ofstream file(path);
    file << nlohmann::json{{"traceEvents", std::move(list)}, {"displayTimeUnit", "ns"}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (!file.flush()) fail(ErrorKind::File, "profile: '{}' cannot be written: {}", path, std::strerror(errno));
}

Span::Span(std::string name, int32_t node, int64_t bytes, Ref<Origin> place)
    : name_(std::move(name)), node_(node), bytes_(bytes), place_(std::move(place)), begin_(now()) {}

Span::~Span() {
    const int64_t end = now();
    try {
        std::lock_guard lock(mutex);
        if (is_on()) events.push_back({std::move(name_), node_, number_of_thread(), bytes_, begin_, end, std::move(place_)});
    } catch (...) {  // no memory for the note
    }
}

}  // namespace clikart::profile
