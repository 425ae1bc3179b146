/* Memory that changes hands as DLPack describes it: its deleter is called once, whoever comes last. */
#include <clikart/clikart.h>
#include <clikart/ops.h>
#include <stdio.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            ++failures;                                                                   \
        }                                                                                 \
    } while (0)

/* As another library would declare them. */
typedef struct {
    void* data;
    int32_t device_type, device_id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} array_t;
typedef struct managed_t {
    array_t array;
    void* context;
    void (*deleter)(struct managed_t*);
} managed_t;
typedef struct versioned_t {
    uint32_t major, minor;
    void* context;
    void (*deleter)(struct versioned_t*);
    uint64_t flags;
    array_t array;
} versioned_t;

static int deleted = 0;
static void count_managed(managed_t* self) {
    (void)self;
    ++deleted;
}
static void count_versioned(versioned_t* self) {
    (void)self;
    ++deleted;
}

static float memory[] = {-1, 0, 1, 2, 3, 4, 5};
static int64_t sizes[] = {2, 3}, steps[] = {3, 1};

static array_t array(void) {
    array_t a = {memory, 1, 0, 2, 2, 32, 1, sizes, steps, sizeof(float)};
    return a;
}

static void expect_error(clikart_error_kind kind) {
    clikart_error* error = clikart_error_take();
    CHECK(error && clikart_error_get_kind(error) == kind);
    clikart_error_release(error);
}

static void in(void) {
    managed_t managed = {array(), NULL, count_managed};
    versioned_t versioned = {1, 3, NULL, count_versioned, 1, array()};
    clikart_tensor* a = clikart_tensor_from_dlpack(&managed, false, 0);
    clikart_tensor* b = clikart_tensor_from_dlpack(&versioned, true, 0);
    float values[6];
    CHECK(a && b && clikart_tensor_copy_to(a, values, sizeof values) == 0 && memcmp(values, memory + 1, sizeof values) == 0);
    CHECK(clikart_tensor_data(a) == memory + 1 && clikart_tensor_is_writable(a) && !clikart_tensor_is_writable(b));
    clikart_tensor* view = clikart_select(a, 0, 1);
    clikart_tensor_release(a);
    CHECK(deleted == 0);
    clikart_tensor_release(view);
    CHECK(deleted == 1);
    clikart_tensor_release(b);
    CHECK(deleted == 2);

    /* With a token the lender calls it. */
    uint64_t tokens[2] = {0, 0};
    a = clikart_tensor_from_dlpack(&managed, false, 77);
    clikart_tensor_release(a);
    CHECK(deleted == 2 && clikart_take_returned(tokens, 2) == 1 && tokens[0] == 77);
    clikart_dlpack_delete(&managed, false);
    CHECK(deleted == 3);

    /* What is refused stays the caller's. */
    managed_t wrong = managed;
    wrong.array.device_type = 2;
    CHECK(clikart_tensor_from_dlpack(&wrong, false, 0) == NULL);
    expect_error(CLIKART_ERROR_NOT_IMPLEMENTED);
    wrong = managed;
    wrong.array.lanes = 2;
    CHECK(clikart_tensor_from_dlpack(&wrong, false, 0) == NULL);
    expect_error(CLIKART_ERROR_TYPE);
    wrong = managed;
    wrong.array.byte_offset = 1;
    CHECK(clikart_tensor_from_dlpack(&wrong, false, 0) == NULL);
    expect_error(CLIKART_ERROR_VALUE);
    wrong = managed;
    wrong.array.data = NULL;
    CHECK(clikart_tensor_from_dlpack(&wrong, false, 0) == NULL);
    expect_error(CLIKART_ERROR_TYPE);
    wrong = managed;
    wrong.array.ndim = -1;
    CHECK(clikart_tensor_from_dlpack(&wrong, false, 0) == NULL);
    expect_error(CLIKART_ERROR_VALUE);
    versioned.major = 2;
    CHECK(clikart_tensor_from_dlpack(&versioned, true, 0) == NULL);
    expect_error(CLIKART_ERROR_NOT_IMPLEMENTED);
    CHECK(deleted == 3);
}

static void out(void) {
    const int64_t before = clikart_memory_current();
    const int64_t shape[] = {2, 2};
    clikart_tensor* one = clikart_scalar_int(1);
    clikart_tensor* x = clikart_full(shape, 2, one, CLIKART_FLOAT64, NULL);
    versioned_t* versioned = clikart_tensor_to_dlpack(x, true, false);
    managed_t* copied = clikart_tensor_to_dlpack(x, false, true);
    CHECK(versioned && versioned->major == 1 && versioned->flags == 0 && versioned->array.data == clikart_tensor_data(x));
    CHECK(copied && copied->array.data != versioned->array.data && copied->array.ndim == 2 && copied->array.strides[0] == 2);
    CHECK(copied->array.code == 2 && copied->array.bits == 64 && copied->array.lanes == 1 && copied->array.byte_offset == 0);
    clikart_tensor_release(x);
    CHECK(((double*)versioned->array.data)[3] == 1 && ((double*)copied->array.data)[3] == 1);
    x = clikart_tensor_from_dlpack(versioned, true, 0);
    CHECK(x && clikart_add_(x, one) == 0 && clikart_tensor_wait(x, -1) == 1 && ((double*)versioned->array.data)[3] == 2);
    clikart_tensor_release(x);
    clikart_dlpack_delete(copied, false);

    clikart_borrow constant = {sizeof constant, memory, shape, NULL, 2, CLIKART_FLOAT32, false, NULL, NULL, 0};
    x = clikart_tensor_borrow(&constant);
    CHECK(clikart_tensor_to_dlpack(x, false, false) == NULL);
    expect_error(CLIKART_ERROR_VALUE);
    versioned = clikart_tensor_to_dlpack(x, true, false);
    CHECK(versioned && (versioned->flags & 1));
    clikart_dlpack_delete(versioned, true);
    clikart_tensor_release(x);
    clikart_tensor_release(one);
    CHECK(clikart_memory_current() == before);
}

int main(void) {
    in();
    out();
    return failures != 0;
}
