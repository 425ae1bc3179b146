/* Wrong calls of the C ABI: each gives an error object of the right kind, and nothing else happens. */
#include <clikart/clikart.h>
#include <clikart/ops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
            ++failures;                                                                   \
        }                                                                                 \
    } while (0)

/* The thread has an error of this kind whose text contains `part`; takes it. */
static void expect(int line, clikart_error_kind kind, const char* part) {
    clikart_error* error = clikart_error_take();
    if (!error || clikart_error_get_kind(error) != kind || !strstr(clikart_error_message(error), part)) {
        fprintf(stderr, "line %d: expected kind %d with '%s', got %d: '%s'\n", line, (int)kind, part, error ? (int)clikart_error_get_kind(error) : -1,
                clikart_error_message(error));
        ++failures;
    }
    clikart_error_release(error);
    CHECK(clikart_error_take() == NULL);
}

#define REFUSED(call, kind, part)         \
    do {                                  \
        CHECK((call) == NULL);            \
        expect(__LINE__, (kind), (part)); \
    } while (0)
#define REFUSED_STATUS(call, kind, part)  \
    do {                                  \
        CHECK((call) == -1);              \
        expect(__LINE__, (kind), (part)); \
    } while (0)

static clikart_tensor* ones(int64_t n, int64_t m, clikart_dtype dtype) {
    const int64_t shape[] = {n, m};
    clikart_tensor* one = clikart_scalar_int(1);
    clikart_tensor* result = clikart_full(shape, 2, one, dtype, NULL);
    clikart_tensor_release(one);
    CHECK(result != NULL);
    return result;
}

static void null_arguments(void) {
    clikart_tensor* x = ones(2, 3, CLIKART_FLOAT32);
    const int64_t shape[] = {2}, box[] = {1, 2};
    REFUSED(clikart_add(NULL, x), CLIKART_ERROR_TYPE, "add: a is NULL");
    REFUSED(clikart_add(x, NULL), CLIKART_ERROR_TYPE, "add: b is NULL");
    REFUSED(clikart_concat(NULL, 2, 0), CLIKART_ERROR_TYPE, "concat");
    REFUSED(clikart_reshape(x, NULL, 1), CLIKART_ERROR_VALUE, "reshape: shape is NULL");
    REFUSED(clikart_tensor_from_data(NULL, CLIKART_FLOAT32, shape, 1), CLIKART_ERROR_TYPE, "data is NULL");
    REFUSED(clikart_tensor_from_data(shape, CLIKART_FLOAT32, NULL, 1), CLIKART_ERROR_TYPE, "shape is NULL");
    REFUSED(clikart_tensor_data(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_tensor_stream(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_tensor_wait(NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_tensor_copy_to(x, NULL, 24), CLIKART_ERROR_TYPE, "data is NULL");
    REFUSED_STATUS(clikart_tensor_copy_box_to(x, NULL, box, NULL, 8), CLIKART_ERROR_TYPE, "copy_box_to");
    REFUSED(clikart_tensor_to_dlpack(NULL, true, false), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_tensor_from_dlpack(NULL, true, 0), CLIKART_ERROR_TYPE, "NULL");
    CHECK(!clikart_tensor_shares_storage(NULL, x) && clikart_tensor_shares_storage(x, x));
    clikart_dlpack_delete(NULL, true);
    REFUSED_STATUS(clikart_stream_synchronize(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_stream_is_idle(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_is_available(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_stream_create(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_archive_load(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_archive_get(NULL, "x"), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_archive_name(NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_archive_save(NULL, NULL, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_archive_save("x", NULL, (const clikart_tensor* const*)&x, 1), CLIKART_ERROR_TYPE, "names is NULL");
    REFUSED_STATUS(clikart_graph_run(NULL, NULL, 0, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_input_name(NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_graph_node(NULL, 0, NULL), CLIKART_ERROR_TYPE, "NULL");

    /* Releasing nothing is nothing; the metadata of nothing is empty. */
    clikart_tensor_retain(NULL);
    clikart_tensor_release(NULL);
    clikart_stream_retain(NULL);
    clikart_stream_release(NULL);
    clikart_graph_retain(NULL);
    clikart_graph_release(NULL);
    clikart_archive_retain(NULL);
    clikart_archive_release(NULL);
    clikart_error_release(NULL);
    CHECK(clikart_tensor_rank(NULL) == 0 && clikart_tensor_numel(NULL) == 0 && clikart_tensor_shape(NULL) == NULL);
    CHECK(clikart_graph_node_count(NULL) == 0 && clikart_archive_count(NULL) == 0);
    CHECK(strcmp(clikart_error_message(NULL), "") == 0);
    CHECK(clikart_error_take() == NULL);
    clikart_tensor_release(x);
}

static void wrong_kinds(void) {
    clikart_tensor* x = ones(2, 3, CLIKART_FLOAT32);
    clikart_stream* stream = clikart_stream_current();
    REFUSED(clikart_exp((clikart_tensor*)stream), CLIKART_ERROR_TYPE, "handle of another kind");
    REFUSED_STATUS(clikart_stream_synchronize((clikart_stream*)x), CLIKART_ERROR_TYPE, "handle of another kind");
    REFUSED_STATUS(clikart_graph_run_into(NULL, NULL, 0, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_graph_run_like(NULL, NULL, 0, NULL, 0, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS((int)clikart_graph_peak(NULL, NULL, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_audit(NULL, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_graph_save(NULL, "x"), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_load(NULL, 2), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_region(NULL, 0, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_graph_holds(NULL, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_condition(NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_graph_mismatch(NULL, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    CHECK(clikart_graph_condition_count(NULL) == 0);
    clikart_region_retain(NULL);
    clikart_region_release(NULL);
    REFUSED_STATUS(clikart_profile_end("x"), CLIKART_ERROR_RUNTIME, "nothing is noted");
    REFUSED_STATUS((int)clikart_tensor_layouts(NULL, 1, NULL, 0), CLIKART_ERROR_TYPE, "NULL");
    CHECK(!clikart_graph_can_be_audited(NULL));
    REFUSED_STATUS(clikart_graph_run((clikart_graph*)x, NULL, 0, NULL, 0), CLIKART_ERROR_TYPE, "handle of another kind");
    REFUSED(clikart_archive_get((clikart_archive*)x, "x"), CLIKART_ERROR_TYPE, "handle of another kind");
    clikart_stream_release(stream);
    clikart_tensor_release(x);
}

static void wrong_shapes_and_dtypes(void) {
    clikart_tensor* x = ones(2, 3, CLIKART_FLOAT32);
    clikart_tensor* y = ones(2, 4, CLIKART_FLOAT32);
    clikart_tensor* flags = ones(2, 3, CLIKART_BOOL);
    const int64_t negative[] = {2, -3}, huge[] = {INT64_MAX, 2, 3}, twice[] = {0, 0}, far[] = {7};
    int64_t many[17];
    for (int i = 0; i < 17; ++i) many[i] = 1;
    clikart_tensor* one = clikart_scalar_int(1);
    REFUSED(clikart_add(x, y), CLIKART_ERROR_VALUE, "add: shapes [2, 3] and [2, 4] do not broadcast");
    REFUSED(clikart_matmul(x, y), CLIKART_ERROR_VALUE, "matmul: inner sizes differ, got shapes [2, 3] and [2, 4]");
    REFUSED(clikart_matmul(x, one), CLIKART_ERROR_TYPE, "matmul");
    REFUSED(clikart_sub(flags, flags), CLIKART_ERROR_TYPE, "sub: needs numbers, got bool");
    REFUSED(clikart_softmax(flags, -1), CLIKART_ERROR_TYPE, "softmax: needs a floating-point tensor, got bool");
    REFUSED(clikart_softmax(x, 2), CLIKART_ERROR_INDEX, "softmax: dimension 2 is out of range");
    REFUSED(clikart_sum(x, far, 1, false), CLIKART_ERROR_INDEX, "sum: dimension 7 is out of range");
    REFUSED(clikart_sum(x, twice, 2, false), CLIKART_ERROR_VALUE, "sum: dimension 0 is named twice");
    REFUSED(clikart_sum(x, many, 17, false), CLIKART_ERROR_VALUE, "sum: dims has 17 entries");
    REFUSED(clikart_permute(x, twice, 2), CLIKART_ERROR_VALUE, "permute");
    REFUSED(clikart_reshape(x, negative, 2), CLIKART_ERROR_VALUE, "reshape: negative size");
    REFUSED(clikart_full(negative, 2, one, CLIKART_FLOAT32, NULL), CLIKART_ERROR_VALUE, "full: negative size in shape [2, -3]");
    REFUSED(clikart_full(huge, 3, one, CLIKART_FLOAT32, NULL), CLIKART_ERROR_VALUE, "more elements than can be addressed");
    REFUSED(clikart_full(many, 17, one, CLIKART_FLOAT32, NULL), CLIKART_ERROR_VALUE, "full: shape has 17 entries");
    REFUSED(clikart_full(many, 1, one, (clikart_dtype)99, NULL), CLIKART_ERROR_TYPE, "99");
    clikart_tensor* stored = clikart_full(many, 1, one, CLIKART_FLOAT8_E4M3FN, NULL);
    REFUSED(clikart_exp(stored), CLIKART_ERROR_NOT_IMPLEMENTED, "op 'exp' has no float8_e4m3fn kernel on cpu");
    clikart_tensor_release(stored);
    REFUSED(clikart_cast(x, CLIKART_UNSPECIFIED), CLIKART_ERROR_TYPE, "cast: a dtype is needed");
    REFUSED(clikart_concat((const clikart_tensor* const*)&x, 0, 0), CLIKART_ERROR_VALUE, "concat: needs at least one tensor");
    REFUSED(clikart_arange(x, one, one, CLIKART_UNSPECIFIED, NULL), CLIKART_ERROR_TYPE, "arange");
    REFUSED(clikart_tensor_from_data(many, (clikart_dtype)-1, many, 1), CLIKART_ERROR_TYPE, "not the code of a dtype");
    REFUSED(clikart_tensor_from_data(many, CLIKART_INT64, many, 17), CLIKART_ERROR_VALUE, "at most 16 dimensions");
    int64_t room[6];
    REFUSED_STATUS(clikart_tensor_copy_to(x, room, 23), CLIKART_ERROR_VALUE, "copy_to: 23 bytes");
    clikart_tensor_release(one);
    clikart_tensor_release(flags);
    clikart_tensor_release(y);
    clikart_tensor_release(x);
}

static void devices(void) {
    const int64_t shape[] = {2};
    clikart_tensor* one = clikart_scalar_int(1);
    clikart_placement where = {sizeof where, "cuda:0", NULL};
    CHECK(clikart_is_available("cpu") == 1);
    CHECK(clikart_is_available("cuda:0") == 0 && clikart_is_available("vulkan") == 0 && clikart_is_available("metal") == 0);
    REFUSED_STATUS(clikart_is_available("toaster"), CLIKART_ERROR_VALUE, "unknown device 'toaster'");
    REFUSED_STATUS(clikart_is_available("cuda:-1"), CLIKART_ERROR_VALUE, "unknown device");
    REFUSED_STATUS(clikart_is_available("cpu:1"), CLIKART_ERROR_VALUE, "unknown device");
    REFUSED(clikart_full(shape, 1, one, CLIKART_FLOAT32, &where), CLIKART_ERROR_NOT_IMPLEMENTED, "full: device cuda:0");
    REFUSED(clikart_stream_create("metal"), CLIKART_ERROR_NOT_IMPLEMENTED, "stream_create: device metal:0");
    where.device = "nowhere";
    REFUSED(clikart_full(shape, 1, one, CLIKART_FLOAT32, &where), CLIKART_ERROR_VALUE, "unknown device 'nowhere'");
    where.struct_size = 4;
    REFUSED(clikart_full(shape, 1, one, CLIKART_FLOAT32, &where), CLIKART_ERROR_VALUE, "struct_size");
    clikart_tensor_release(one);
}

/* More memory than the machine has: the failure belongs to the result, and the next call is fine. */
static void out_of_memory(void) {
    const int64_t shape[] = {(int64_t)1 << 50};
    const int64_t before = clikart_memory_current();
    clikart_tensor* one = clikart_scalar_int(1);
    clikart_tensor* huge = clikart_full(shape, 1, one, CLIKART_FLOAT64, NULL);
    CHECK(huge != NULL);
    REFUSED_STATUS(clikart_tensor_wait(huge, -1), CLIKART_ERROR_MEMORY, "full: out of memory");
    REFUSED(clikart_tensor_data(huge), CLIKART_ERROR_MEMORY, "full: out of memory"); /* reads always raise */
    clikart_tensor* next = clikart_exp(huge);
    CHECK(next != NULL);
    REFUSED(clikart_tensor_data(next), CLIKART_ERROR_MEMORY, "full: out of memory");
    CHECK(!clikart_set_synchronous(true));
    REFUSED(clikart_full(shape, 1, one, CLIKART_FLOAT64, NULL), CLIKART_ERROR_MEMORY, "full: out of memory");
    CHECK(clikart_set_synchronous(false));
    clikart_tensor* fine = ones(2, 2, CLIKART_FLOAT32);
    const float* values = clikart_tensor_data(fine);
    CHECK(values && values[3] == 1.0f);
    clikart_tensor_release(huge);
    clikart_tensor_release(next);
    clikart_tensor_release(one);
    clikart_tensor_release(fine);
    CHECK(clikart_memory_current() == before);
}

static void numbers_beyond_int64(void) {
    clikart_tensor* most = clikart_scalar_uint(UINT64_MAX);
    clikart_tensor* few = clikart_scalar_uint(5);
    clikart_tensor* x = ones(1, 1, CLIKART_INT64);
    clikart_tensor* u = ones(1, 1, CLIKART_UINT64);
    clikart_tensor* f = ones(1, 1, CLIKART_FLOAT32);
    CHECK(most && few);
    REFUSED(clikart_add(x, most), CLIKART_ERROR_OVERFLOW, "add: 18446744073709551615 does not fit int64");
    REFUSED(clikart_eq(x, most), CLIKART_ERROR_OVERFLOW, "eq: 18446744073709551615");
    REFUSED(clikart_cast(most, CLIKART_INT8), CLIKART_ERROR_OVERFLOW, "cast: 18446744073709551615 does not fit int8");
    REFUSED_STATUS(clikart_copy_(x, most), CLIKART_ERROR_OVERFLOW, "copy_: 18446744073709551615");
    clikart_tensor* sum = clikart_sub(most, u);
    clikart_tensor* product = clikart_mul(f, most);
    clikart_tensor* six = clikart_add(x, few);
    CHECK(sum && product && six);
    CHECK(clikart_tensor_dtype(sum) == CLIKART_UINT64 && *(const uint64_t*)clikart_tensor_data(sum) == UINT64_MAX - 1);
    CHECK(clikart_tensor_dtype(product) == CLIKART_FLOAT32 && *(const float*)clikart_tensor_data(product) == 18446744073709551616.0f);
    CHECK(clikart_tensor_dtype(six) == CLIKART_INT64 && *(const int64_t*)clikart_tensor_data(six) == 6);
    clikart_tensor* all[] = {most, few, x, u, f, sum, product, six};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) clikart_tensor_release(all[i]);
}

static void captures(void) {
    const int64_t shape[] = {2, 3};
    const char* names[] = {"y"};
    REFUSED(clikart_capture_input("x", CLIKART_FLOAT32, shape, 2), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED(clikart_capture_end(NULL, NULL, 0), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED_STATUS(clikart_capture_size(NULL, 0, NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_capture_computed_size(CLIKART_SIZE_ADD, 1, 2), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED_STATUS(clikart_capture_require_size(1), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED(clikart_capture_size_number(1), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED_STATUS(clikart_capture_give_up("why"), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED_STATUS(clikart_capture_give_up(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED_STATUS(clikart_region_begin(), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED(clikart_region_input(NULL), CLIKART_ERROR_TYPE, "NULL");
    REFUSED(clikart_region_end(NULL, 0), CLIKART_ERROR_RUNTIME, "not recording");
    REFUSED_STATUS(clikart_cond(NULL, NULL, NULL, NULL, 0), CLIKART_ERROR_TYPE, "cond: the condition is NULL");
    REFUSED_STATUS(clikart_while_loop(NULL, NULL, NULL, NULL, 0), CLIKART_ERROR_TYPE, "while_loop: a region is NULL");
    clikart_capture_cancel();

    CHECK(clikart_capture_begin() == 0);
    REFUSED_STATUS(clikart_capture_begin(), CLIKART_ERROR_RUNTIME, "already recording");
    clikart_tensor* x = clikart_capture_input("x", CLIKART_FLOAT32, shape, 2);
    clikart_tensor* y = clikart_exp(x);
    CHECK(x && y && clikart_tensor_is_stand_in(y));
    REFUSED(clikart_tensor_data(y), CLIKART_ERROR_RUNTIME, "cannot be read");
    REFUSED_STATUS(clikart_tensor_wait(x, 0), CLIKART_ERROR_RUNTIME, "cannot be read");
    clikart_graph* graph = clikart_capture_end((const clikart_tensor* const*)&y, names, 1);
    CHECK(graph != NULL);
    REFUSED(clikart_exp(y), CLIKART_ERROR_RUNTIME, "exp: the tensor float32 [2, 3] stands for a value"); /* after the capture */

    clikart_tensor* in = ones(2, 3, CLIKART_FLOAT32);
    clikart_tensor* wrong = ones(3, 3, CLIKART_FLOAT32);
    clikart_tensor* out[2] = {NULL, NULL};
    const clikart_tensor* two[] = {in, in};
    REFUSED_STATUS(clikart_graph_run(graph, two, 2, out, 1), CLIKART_ERROR_VALUE, "2 inputs given, the graph has 1");
    REFUSED_STATUS(clikart_graph_run(graph, two, 1, out, 2), CLIKART_ERROR_VALUE, "room for 2 outputs");
    REFUSED_STATUS(clikart_graph_run(graph, (const clikart_tensor* const*)&wrong, 1, out, 1), CLIKART_ERROR_VALUE, "input 'x' is float32 [3, 3]");
    REFUSED(clikart_graph_input_name(graph, 5), CLIKART_ERROR_INDEX, "index 5");
    clikart_node node = {0};
    REFUSED_STATUS(clikart_graph_node(graph, 0, &node), CLIKART_ERROR_VALUE, "struct_size");
    CHECK(out[0] == NULL && out[1] == NULL);
    CHECK(clikart_graph_run(graph, two, 1, out, 1) == 0 && out[0]);
    REFUSED_STATUS(clikart_graph_run_into(graph, two, 1, &wrong, 1), CLIKART_ERROR_VALUE, "a tensor for it was given that is float32 [3, 3]");
    REFUSED_STATUS(clikart_graph_run_into(graph, two, 1, NULL, 1), CLIKART_ERROR_TYPE, "NULL");
    CHECK(clikart_graph_run_into(graph, two, 1, out, 1) == 0);
    int64_t layouts[8];
    const size_t n_layouts = (size_t)clikart_tensor_layouts(two, 1, layouts, 8);
    clikart_tensor* like = NULL;
    CHECK(n_layouts == 7 && clikart_graph_run_like(graph, two, 1, layouts, n_layouts, &like, 1) == 1 && like);
    clikart_tensor_release(like);
    like = NULL;
    CHECK(clikart_graph_run_like(graph, two, 1, layouts, n_layouts - 1, &like, 1) == 0 && !like);
    REFUSED_STATUS(clikart_graph_run_like(graph, two, 1, NULL, n_layouts, &like, 1), CLIKART_ERROR_TYPE, "NULL");
    layouts[5] += 1;
    CHECK(clikart_graph_run_like(graph, two, 1, layouts, n_layouts, &like, 1) == 0 && !like);
    size_t rank = 1;
    int64_t size = 7;
    REFUSED_STATUS((int)clikart_graph_peak(graph, &size, &rank, 1), CLIKART_ERROR_VALUE, "peak: input 'x' is given the shape [7]");
    REFUSED_STATUS((int)clikart_graph_peak(graph, NULL, &rank, 1), CLIKART_ERROR_TYPE, "NULL");
    CHECK(clikart_graph_peak(graph, NULL, NULL, 0) > 0);
    CHECK(clikart_graph_audit(graph, two, 1)[0] == 0);
    REFUSED_STATUS(clikart_graph_save(graph, "/no/such/folder/x"), CLIKART_ERROR_FILE, "cannot be written");
    REFUSED(clikart_graph_load("/no/such/folder/x", 2), CLIKART_ERROR_FILE, "cannot be opened");

    /* A stand-in of one capture in another. */
    CHECK(clikart_capture_begin() == 0);
    clikart_tensor* foreign = clikart_exp(y);
    CHECK(foreign != NULL);
    REFUSED(clikart_capture_end((const clikart_tensor* const*)&foreign, names, 1), CLIKART_ERROR_VALUE, "another capture");
    REFUSED(clikart_capture_end(NULL, NULL, 0), CLIKART_ERROR_RUNTIME, "not recording");

    clikart_tensor_release(foreign);
    clikart_tensor_release(out[0]);
    clikart_tensor_release(in);
    clikart_tensor_release(wrong);
    clikart_tensor_release(y);
    clikart_tensor_release(x);
    clikart_graph_release(graph);
}

int main(void) {
    null_arguments();
    wrong_kinds();
    wrong_shapes_and_dtypes();
    devices();
    out_of_memory();
    numbers_beyond_int64();
    captures();
    if (failures == 0) printf("ok\n");
    return failures != 0;
}
