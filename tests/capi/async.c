/* Asynchrony from C: callbacks with user data and destructor, timed waits, polling, borrowed memory, tags, modes.
 * The first call of the process is asynchronous. */
#include <clikart/ops.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                  \
    do {                                                                              \
        if (!(holds)) {                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

struct counts {
    atomic_int called, failed, destroyed;
};

static void count_call(const clikart_tensor* tensor, const clikart_error* error, void* user_data) {
    struct counts* counts = user_data;
    CHECK(clikart_tensor_rank(tensor) < 3);
    if (error) {
        CHECK(strstr(clikart_error_message(error), ": ") != NULL);
        atomic_fetch_add(&counts->failed, 1);
    }
    atomic_fetch_add(&counts->called, 1);
}

static void count_end(void* user_data) {
    atomic_fetch_add(&((struct counts*)user_data)->destroyed, 1);
}

static void expect_error(clikart_error_kind kind, const char* begin) {
    clikart_error* error = clikart_error_take();
    CHECK(error != NULL);
    if (clikart_error_get_kind(error) != kind || strncmp(clikart_error_message(error), begin, strlen(begin)) != 0) {
        fprintf(stderr, "expected '%s...', got '%s'\n", begin, clikart_error_message(error));
        exit(1);
    }
    clikart_error_release(error);
}

/* A product that takes a while. */
static clikart_tensor* slow(void) {
    const int64_t shape[] = {1024, 1024};
    clikart_tensor* value = clikart_scalar_float(1.0 / 1024);
    clikart_tensor* a = clikart_full(shape, 2, value, CLIKART_FLOAT32, NULL);
    clikart_tensor* x = clikart_matmul(a, a);
    for (int i = 0; i < 6; ++i) {
        clikart_tensor* next = clikart_matmul(x, a);
        clikart_tensor_release(x);
        x = next;
    }
    clikart_tensor_release(value);
    clikart_tensor_release(a);
    CHECK(x != NULL);
    return x;
}

static void waits_and_polls(void) {
    clikart_tensor* x = slow();
    CHECK(clikart_tensor_status(x) == CLIKART_STATUS_EVALUATED);
    CHECK(clikart_tensor_is_ready(x) == 0);
    CHECK(clikart_tensor_wait(x, 0) == 0 && clikart_tensor_wait(x, 1000) == 0);
    clikart_stream* stream = clikart_tensor_stream(x);
    CHECK(clikart_stream_is_idle(stream) == 0 && clikart_stream_wait(stream, 1000) == 0 && clikart_device_wait("cpu", 1000) == 0);
    CHECK(clikart_tensor_wait(x, -1) == 1 && clikart_tensor_is_ready(x) == 1);
    CHECK(clikart_stream_wait(stream, -1) == 1 && clikart_device_wait("cpu", -1) == 1);
    CHECK(strcmp(clikart_stream_device(stream), "cpu") == 0 && !clikart_stream_is_default(stream));
    clikart_stream_release(stream);
    clikart_tensor_release(x);
    CHECK(clikart_device_wait("toaster", 0) == -1);
    expect_error(CLIKART_ERROR_VALUE, "device: unknown device 'toaster'");
    CHECK(clikart_stream_wait(NULL, 0) == -1);
    expect_error(CLIKART_ERROR_TYPE, "stream_wait: ");
}

static void callbacks(void) {
    struct counts counts = {0};
    /* Later, on the pool; the handle may go before. */
    clikart_tensor* x = slow();
    for (int i = 0; i < 5; ++i) CHECK(clikart_tensor_on_complete(x, count_call, &counts, count_end) == 0);
    CHECK(counts.called == 0);
    clikart_tensor_release(x);
    clikart_finish();
    CHECK(counts.called == 5 && counts.destroyed == 5 && counts.failed == 0);
    /* Here and now. */
    clikart_tensor* done = clikart_scalar_int(3);
    CHECK(clikart_tensor_on_complete(done, count_call, &counts, count_end) == 0);
    CHECK(counts.called == 6 && counts.destroyed == 6);
    /* Refused: never called, destroyed all the same. */
    CHECK(clikart_tensor_on_complete(done, NULL, &counts, count_end) == -1);
    expect_error(CLIKART_ERROR_TYPE, "on_complete: the callback is NULL");
    CHECK(clikart_tensor_on_complete(NULL, count_call, &counts, count_end) == -1);
    expect_error(CLIKART_ERROR_TYPE, "on_complete: the tensor is NULL");
    CHECK(clikart_set_device("meta") == 0);
    const int64_t shape[] = {2};
    clikart_tensor* meta = clikart_full(shape, 1, done, CLIKART_FLOAT32, NULL);
    CHECK(clikart_set_device(NULL) == 0 && clikart_get_device() == NULL);
    CHECK(strcmp(clikart_tensor_device(meta), "meta") == 0);
    CHECK(clikart_tensor_on_complete(meta, count_call, &counts, count_end) == -1);
    expect_error(CLIKART_ERROR_RUNTIME, "on_complete: the tensor float32 [2] is on device meta");
    CHECK(counts.called == 6 && counts.destroyed == 9);
    /* No destructor is none. */
    CHECK(clikart_tensor_on_complete(done, count_call, &counts, NULL) == 0 && counts.called == 7);
    /* A failure is told. */
    CHECK(clikart_set_tag("async.c") == 0);
    const int64_t too_large[] = {(int64_t)1 << 50};
    clikart_tensor* bad = clikart_full(too_large, 1, done, CLIKART_FLOAT32, NULL);
    CHECK(clikart_set_tag(NULL) == 0);
    CHECK(clikart_tensor_on_complete(bad, count_call, &counts, count_end) == 0);
    clikart_finish();
    CHECK(counts.called == 8 && counts.failed == 1 && counts.destroyed == 10);
    CHECK(clikart_tensor_wait(bad, -1) == -1);
    clikart_error* error = clikart_error_take();
    CHECK(clikart_error_get_kind(error) == CLIKART_ERROR_MEMORY && strstr(clikart_error_message(error), "; called at async.c") != NULL);
    clikart_error_release(error);
    clikart_tensor_release(bad);
    clikart_tensor_release(meta);
    clikart_tensor_release(done);
}

static void give_back(void* flag) {
    atomic_fetch_add((atomic_int*)flag, 1);
}

static void borrowed(void) {
    float memory[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    atomic_int given_back = 0;
    const int64_t shape[] = {2, 3}, strides[] = {4, -1};
    clikart_borrow what = {.struct_size = sizeof what,
                           .data = memory + 2,
                           .shape = shape,
                           .strides = strides,
                           .rank = 2,
                           .dtype = CLIKART_FLOAT32,
                           .writable = true,
                           .release = give_back,
                           .user_data = &given_back};
    clikart_tensor* t = clikart_tensor_borrow(&what);
    CHECK(t != NULL && clikart_tensor_status(t) == CLIKART_STATUS_AVAILABLE && clikart_tensor_is_writable(t));
    clikart_tensor* ten = clikart_scalar_int(10);
    CHECK(clikart_mul_(t, ten) == 0 && clikart_tensor_wait(t, -1) == 1);
    const float expected[8] = {10, 20, 30, 4, 50, 60, 70, 8};
    CHECK(memcmp(memory, expected, sizeof memory) == 0);
    float read[6];
    CHECK(clikart_tensor_copy_to(t, read, sizeof read) == 0 && read[0] == 30 && read[5] == 50);
    CHECK(clikart_copy_(t, ten) == 0);
    clikart_tensor_release(t);
    clikart_finish();
    CHECK(given_back == 1 && memory[0] == 10 && memory[3] == 4);

    /* Refused, and then not kept. */
    what.struct_size = 8;
    CHECK(clikart_tensor_borrow(&what) == NULL);
    expect_error(CLIKART_ERROR_VALUE, "tensor_borrow: struct_size is 8");
    what.struct_size = sizeof what;
    what.data = (char*)memory + 1;
    CHECK(clikart_tensor_borrow(&what) == NULL);
    expect_error(CLIKART_ERROR_VALUE, "tensor_borrow: the address");
    what.data = NULL;
    CHECK(clikart_tensor_borrow(&what) == NULL);
    expect_error(CLIKART_ERROR_TYPE, "tensor_borrow: data is NULL");
    what.data = memory;
    const int64_t far[] = {INT64_MAX / 2, INT64_MAX / 2};
    what.strides = far;
    const int64_t wide[] = {4, 4};
    what.shape = wide;
    CHECK(clikart_tensor_borrow(&what) == NULL);
    expect_error(CLIKART_ERROR_VALUE, "tensor_borrow: shape [4, 4] with strides");
    what.strides = NULL;
    what.dtype = 99;
    CHECK(clikart_tensor_borrow(&what) == NULL);
    expect_error(CLIKART_ERROR_TYPE, "dtype: 99");
    CHECK(clikart_tensor_borrow(NULL) == NULL);
    expect_error(CLIKART_ERROR_TYPE, "tensor_borrow: the description is NULL");
    CHECK(given_back == 1);

    /* By token. */
    what.dtype = CLIKART_FLOAT32;
    what.release = NULL;
    what.token = 77;
    what.writable = false;
    const int64_t plain[] = {8};
    what.shape = plain;
    what.rank = 1;
    t = clikart_tensor_borrow(&what);
    CHECK(t != NULL && !clikart_tensor_is_writable(t));
    CHECK(clikart_add_(t, ten) == -1);
    expect_error(CLIKART_ERROR_VALUE, "add: the memory of float32 [8] was borrowed read-only");
    clikart_tensor_release(t);
    uint64_t tokens[4] = {0};
    CHECK(clikart_take_returned(tokens, 4) == 1 && tokens[0] == 77 && clikart_take_returned(tokens, 4) == 0);
    clikart_tensor_release(ten);
}

static void modes(void) {
    CHECK(clikart_get_mode() == CLIKART_MODE_EAGER);
    CHECK(clikart_set_mode(CLIKART_MODE_CAPTURE) == -1);
    expect_error(CLIKART_ERROR_RUNTIME, "set_mode: ");
    CHECK(clikart_set_mode(17) == -1);
    expect_error(CLIKART_ERROR_VALUE, "set_mode: 17");
    CHECK(clikart_set_mode(CLIKART_MODE_TRACING) == CLIKART_MODE_EAGER);
    clikart_tensor *one = clikart_scalar_int(1), *two = clikart_add(one, one);
    CHECK(clikart_tensor_status(two) == CLIKART_STATUS_UNSCHEDULED && clikart_tensor_is_ready(two) == 0);
    CHECK(clikart_set_mode(CLIKART_MODE_EAGER) == CLIKART_MODE_TRACING);
    CHECK(clikart_tensor_start(two) == 0 && clikart_tensor_status(two) == CLIKART_STATUS_EVALUATED);
    int64_t value = 0;
    CHECK(clikart_tensor_copy_to(two, &value, sizeof value) == 0 && value == 2);
    clikart_tensor_release(one);
    clikart_tensor_release(two);
    CHECK(clikart_set_num_threads(0) == -1);
    expect_error(CLIKART_ERROR_VALUE, "set_num_threads: ");
    CHECK(clikart_set_num_threads(3) == 0 && clikart_num_threads() == 3);
    CHECK(clikart_memory_set_limit(1 << 30) == -1 && clikart_memory_set_limit(-1) == 1 << 30);
    CHECK(clikart_finish_within(1000000000) == 1);
}

int main(void) {
    waits_and_polls();
    callbacks();
    borrowed();
    modes();
    puts("as documented");
    return 0;
}
