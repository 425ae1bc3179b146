// Faults on purpose, which the sanitizer builds must report: planted race | overflow | undefined
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "exec/thread_pool.h"

int main(int argc, char** argv) {
    if (argc != 2) return 2;
    if (!std::strcmp(argv[1], "race")) {
        long counter = 0;  // not atomic
        clikart::ThreadPool::instance().parallel_for(1000, [&](int64_t) {
            ++counter;
            std::this_thread::yield();
        });
        std::printf("%ld\n", counter);
    } else if (!std::strcmp(argv[1], "overflow")) {
        std::vector<char> block(16);
        volatile char* past = block.data() + block.capacity();
        *past = 1;
    } else if (!std::strcmp(argv[1], "undefined")) {
        volatile int bits = 40;
        std::printf("%d\n", 1 << bits);
    }
    return 0;
}
