/* Put before each program of test_pains.py. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <clikart/clikart.h>
#include <clikart/ops.h>
#ifdef __cplusplus
#include <ClikaRT/clika_rt.h>
#endif
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            fprintf(stderr, "line %d: CHECK(%s) failed\n", __LINE__, #condition); \
            _exit(1);                                                             \
        }                                                                         \
    } while (0)

/* The thread has an error of this kind whose text contains `part`; takes it. */
static inline void expect(clikart_error_kind kind, const char* part) {
    clikart_error* error = clikart_error_take();
    CHECK(error);
    if (clikart_error_get_kind(error) != kind || !strstr(clikart_error_message(error), part)) {
        fprintf(stderr, "expected kind %d with '%s', got %d: %s\n", (int)kind, part, (int)clikart_error_get_kind(error), clikart_error_message(error));
        _exit(1);
    }
    clikart_error_release(error);
}

static inline clikart_tensor* full(int64_t n, int64_t m, double value) {
    const int64_t shape[] = {n, m};
    clikart_tensor* number = clikart_scalar_float(value);
    clikart_tensor* result = clikart_full(shape, 2, number, CLIKART_FLOAT32, NULL);
    clikart_tensor_release(number);
    return result;
}

/* A chain of matrix products, all elements 1 / size. */
static inline clikart_tensor* products(int count, int64_t size) {
    clikart_tensor *x = full(size, size, 1.0 / (double)size), *y = full(size, size, 1.0 / (double)size);
    for (int i = 0; i < count; ++i) {
        clikart_tensor* next = clikart_matmul(y, x);
        clikart_tensor_release(y);
        y = next;
    }
    clikart_tensor_release(x);
    return y;
}
