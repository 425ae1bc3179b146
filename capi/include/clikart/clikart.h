/* ClikaRT's C ABI.  docs/c_abi.md is the manual; in short:
 *
 * Handles are opaque and counted.  Who gets one from a call owns one reference and gives it back with the type's
 * release function; retain adds one.  Release accepts NULL, and handles may be released in any order.
 * Errors: a call that fails returns NULL (-1 where it returns an int) and leaves an error object in the calling thread,
 * which clikart_error_take hands over.  Nothing aborts and nothing throws.
 * Threads: every function may be called from any thread; exceptions say so. */
#ifndef CLIKART_CLIKART_H
#define CLIKART_CLIKART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <clikart/enums.h>

#define CLIKART_VERSION_MAJOR 0
#define CLIKART_VERSION_MINOR 1
#define CLIKART_VERSION_PATCH 0
/* major * 10000 + minor * 100 + patch */
#define CLIKART_VERSION 100

#if defined(__GNUC__)
#define CLIKART_API __attribute__((visibility("default")))
#else
#define CLIKART_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct clikart_tensor clikart_tensor;
typedef struct clikart_stream clikart_stream;
typedef struct clikart_graph clikart_graph;
typedef struct clikart_archive clikart_archive;
typedef struct clikart_error clikart_error;

/* ---- version ---------------------------------------------------------------------------------------------------- */

/* CLIKART_VERSION of the library that is running; compare with the macro of the header.  Never changes its signature. */
CLIKART_API uint32_t clikart_version(void);
/* What was built and what it found: one line "key: value" each.  Static text. */
CLIKART_API const char* clikart_build_report(void);

/* ---- errors ----------------------------------------------------------------------------------------------------- */

/* The calling thread's error, which the caller then owns and the thread no longer has; NULL when there is none.
 * A later failure in the thread replaces an error that nobody took. */
CLIKART_API clikart_error* clikart_error_take(void);
CLIKART_API clikart_error_kind clikart_error_get_kind(const clikart_error* error);
/* UTF-8, valid as long as the error. */
CLIKART_API const char* clikart_error_message(const clikart_error* error);
CLIKART_API void clikart_error_release(clikart_error* error);

/* ---- devices and placement -------------------------------------------------------------------------------------- */

/* 1 when the device ("cpu", "cuda:0", ...) can hold tensors here, 0 when not, -1 with an error for a text that names
 * no device. */
CLIKART_API int clikart_is_available(const char* device);

/* Where a created tensor is to live.  Set struct_size to sizeof(clikart_placement) and what is not used to NULL.
 * Functions that take one accept NULL: the calling thread's stream on the CPU. */
typedef struct clikart_placement {
    size_t struct_size;
    const char* device;           /* NULL: the stream's device, or "cpu" */
    const clikart_stream* stream; /* NULL: the calling thread's stream for the device */
} clikart_placement;

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

CLIKART_API void clikart_tensor_retain(const clikart_tensor* tensor);
CLIKART_API void clikart_tensor_release(clikart_tensor* tensor);

/* A tensor with a copy of `data`, row-major elements of the C type that docs/c_abi.md lists for the dtype.  A scalar
 * has rank 0 and may pass NULL for the shape. */
CLIKART_API clikart_tensor* clikart_tensor_from_data(const void* data, clikart_dtype dtype, const int64_t* shape, size_t rank);

/* Numbers as operands.  They are 0-d and give way to tensors in type promotion, as a Python number does. */
CLIKART_API clikart_tensor* clikart_scalar_float(double value);
CLIKART_API clikart_tensor* clikart_scalar_int(int64_t value);
CLIKART_API clikart_tensor* clikart_scalar_bool(bool value);

/* Metadata; never waits.  Shape and strides (in elements) have rank entries and live as long as the tensor. */
CLIKART_API clikart_dtype clikart_tensor_dtype(const clikart_tensor* tensor);
CLIKART_API size_t clikart_tensor_rank(const clikart_tensor* tensor);
CLIKART_API const int64_t* clikart_tensor_shape(const clikart_tensor* tensor);
CLIKART_API const int64_t* clikart_tensor_strides(const clikart_tensor* tensor);
CLIKART_API int64_t clikart_tensor_numel(const clikart_tensor* tensor);
CLIKART_API bool clikart_tensor_is_contiguous(const clikart_tensor* tensor);
/* True for a tensor that only stands for a value, while a graph is recorded. */
CLIKART_API bool clikart_tensor_is_stand_in(const clikart_tensor* tensor);

/* Waits at most timeout_ns nanoseconds (negative: as long as it takes) for the value.  1: there; 0: not yet; -1: the
 * operator that makes it, or one it depends on, failed, or the tensor stands in for a value. */
CLIKART_API int clikart_tensor_wait(const clikart_tensor* tensor, int64_t timeout_ns);
/* The same, and also for work that reads the tensor's memory at the time of the call: whoever writes there must not do it
 * earlier, and must not submit work that reads the tensor until it is done. */
CLIKART_API int clikart_tensor_wait_writable(const clikart_tensor* tensor, int64_t timeout_ns);
/* Waits for the value, then the address of the first element, to be used with shape and strides; valid as long as the
 * tensor.  To write there, clikart_tensor_wait_writable first.  The address of a tensor without elements may be anything
 * but NULL. */
CLIKART_API void* clikart_tensor_data(const clikart_tensor* tensor);
/* Waits, then copies all elements in row-major order to `data`, which has room for `bytes` bytes, exactly numel times
 * the element's size. */
CLIKART_API int clikart_tensor_copy_to(const clikart_tensor* tensor, void* data, size_t bytes);

/* ---- streams ---------------------------------------------------------------------------------------------------- */

/* A new stream: work on it runs in order, beside the work of other streams. */
CLIKART_API clikart_stream* clikart_stream_create(const char* device);
/* The calling thread's own stream, on which unplaced operators run. */
CLIKART_API clikart_stream* clikart_stream_current(void);
/* The stream a tensor's operator rode; the calling thread's for a tensor that was born with data.  Two handles name
 * the same stream when they are the same pointer. */
CLIKART_API clikart_stream* clikart_tensor_stream(const clikart_tensor* tensor);
CLIKART_API void clikart_stream_retain(const clikart_stream* stream);
CLIKART_API void clikart_stream_release(clikart_stream* stream);
/* Waits until all that was submitted is over.  Failures stay with the results they belong to. */
CLIKART_API int clikart_stream_synchronize(const clikart_stream* stream);
/* 1 when all that was submitted is over, 0 when not, -1 with an error.  Does not wait. */
CLIKART_API int clikart_stream_is_idle(const clikart_stream* stream);
/* Waits until all streams of the process are idle. */
CLIKART_API void clikart_drain(void);
/* Waits until what was submitted is over and refuses further work meanwhile, so that the wait ends whatever other threads
 * do.  For hosts that end before the process does. */
CLIKART_API void clikart_finish(void);
/* Refuses further work and waits for what was submitted.  Happens by itself when the process exits; for hosts that
 * take down what the library needs before that. */
CLIKART_API void clikart_shutdown(void);

/* Sets whether each operator of the calling thread is over before its call returns, which then also reports the
 * operator's failure; returns the previous setting. */
CLIKART_API bool clikart_set_synchronous(bool synchronous);

/* How many threads compute at most. */
CLIKART_API int32_t clikart_num_threads(void);

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

/* From now on the calling thread's operators are recorded instead of run.  0, or -1 with an error. */
CLIKART_API int clikart_capture_begin(void);
/* The graph's next input: a tensor with shape and dtype and no value. */
CLIKART_API clikart_tensor* clikart_capture_input(const char* name, clikart_dtype dtype, const int64_t* shape, size_t rank);
/* Ends the recording, also when it fails, and returns what the outputs depend on as a graph. */
CLIKART_API clikart_graph* clikart_capture_end(const clikart_tensor* const* outputs, const char* const* names, size_t n_outputs);
/* Ends the recording, if there is one, and drops it. */
CLIKART_API void clikart_capture_cancel(void);

CLIKART_API void clikart_graph_retain(const clikart_graph* graph);
CLIKART_API void clikart_graph_release(clikart_graph* graph);
CLIKART_API size_t clikart_graph_input_count(const clikart_graph* graph);
CLIKART_API size_t clikart_graph_output_count(const clikart_graph* graph);
/* Valid as long as the graph; NULL with an error when `index` is out of range, as for the nodes below. */
CLIKART_API const char* clikart_graph_input_name(const clikart_graph* graph, size_t index);
CLIKART_API const char* clikart_graph_output_name(const clikart_graph* graph, size_t index);
CLIKART_API size_t clikart_graph_node_count(const clikart_graph* graph);
typedef struct clikart_node {
    size_t struct_size; /* the caller sets it to sizeof(clikart_node) */
    clikart_op_code op_code;
    clikart_node_kind kind;
    clikart_dtype dtype;
    uint32_t rank;
    const int64_t* shape;  /* as long as the graph lives, as is the next */
    const int32_t* inputs; /* numbers of the nodes that this one reads */
    size_t n_inputs;
} clikart_node;
CLIKART_API int clikart_graph_node(const clikart_graph* graph, size_t index, clikart_node* node);
/* Runs the graph on inputs in order; `outputs` has room for clikart_graph_output_count handles and receives new ones.
 * On failure nothing is written to it. */
CLIKART_API int clikart_graph_run(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, clikart_tensor** outputs, size_t n_outputs);
/* The same with inputs by name, in any order. */
CLIKART_API int clikart_graph_run_named(const clikart_graph* graph, const char* const* names, const clikart_tensor* const* inputs, size_t n_inputs,
                                        clikart_tensor** outputs, size_t n_outputs);

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Reads a safetensors file whole. */
CLIKART_API clikart_archive* clikart_archive_load(const char* path);
CLIKART_API void clikart_archive_retain(const clikart_archive* archive);
CLIKART_API void clikart_archive_release(clikart_archive* archive);
CLIKART_API size_t clikart_archive_count(const clikart_archive* archive);
/* Valid as long as the archive; NULL with an error when `index` is out of range. */
CLIKART_API const char* clikart_archive_name(const clikart_archive* archive, size_t index);
/* A new handle for the tensor of that name; NULL with an error when there is none. */
CLIKART_API clikart_tensor* clikart_archive_get(const clikart_archive* archive, const char* name);
/* Writes tensors to a safetensors file, all or nothing. */
CLIKART_API int clikart_archive_save(const char* path, const char* const* names, const clikart_tensor* const* tensors, size_t n_tensors);

/* ---- memory ----------------------------------------------------------------------------------------------------- */

/* Bytes of tensor memory: handed out now, and the most at once so far. */
CLIKART_API int64_t clikart_memory_current(void);
CLIKART_API int64_t clikart_memory_peak(void);
/* Returns cached memory to the system. */
CLIKART_API void clikart_memory_trim(void);

#ifdef __cplusplus
}
#endif

#endif
