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
typedef struct clikart_region clikart_region; /* a part of a graph that is recorded */
typedef struct clikart_archive clikart_archive;
typedef struct clikart_generator clikart_generator;
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

/* Where the calling thread makes its calls from now on: the text goes into the messages of failures that come late
 * ("...; called at TAG").  NULL or "" takes it back. */
CLIKART_API int clikart_set_tag(const char* tag);

/* What the library says outside of any call: failures when they happen (INFO), what a callback threw (ERROR). */
typedef int32_t clikart_log_level;
enum { CLIKART_LOG_DEBUG = 10, CLIKART_LOG_INFO = 20, CLIKART_LOG_WARNING = 30, CLIKART_LOG_ERROR = 40 };
typedef void (*clikart_log_hook)(clikart_log_level level, const char* message, void* user_data);
/* All messages go to the hook, which any thread may call, with no lock of the library held; it must not wait for work.  NULL: warnings and errors go
 * to stderr, as at first.  `destroy` (may be NULL) is called with user_data once, when the hook is called no more, and
 * also when this call fails. */
CLIKART_API int clikart_set_log_hook(clikart_log_hook hook, void* user_data, void (*destroy)(void* user_data));
/* For hosts that no foreign thread can call: messages are kept, the last 1,000, for clikart_log_next; false ends that. */
CLIKART_API void clikart_log_keep(bool keep);
/* Waits for the next message that was kept, at most timeout_ns nanoseconds (negative: as long as it takes), and copies it,
 * cut to `room` bytes, zero included.  1: there was one, 0: none in time, -1 without an error: messages are not kept. */
CLIKART_API int clikart_log_next(clikart_log_level* level, char* text, size_t room, int64_t timeout_ns);
/* Says something through the hook. */
CLIKART_API void clikart_log(clikart_log_level level, const char* message);

/* ---- devices and placement -------------------------------------------------------------------------------------- */

/* 1 when the device ("cpu", "cuda:0", ...) can hold tensors here, 0 when not, -1 with an error for a text that names
 * no device. */
CLIKART_API int clikart_is_available(const char* device);

/* Where a created tensor is to live.  Set struct_size to sizeof(clikart_placement) and what is not used to NULL.
 * A stream is used as given.  A bare device means the stream that was set for it (clikart_set_stream), else the calling
 * thread's.  Functions that take a placement accept NULL: the calling thread's device (clikart_set_device).  Operators
 * with inputs run on the bare device of these. */
typedef struct clikart_placement {
    size_t struct_size;
    const char* device;           /* NULL: the stream's device, or "cpu" */
    const clikart_stream* stream; /* NULL: the calling thread's stream for the device */
} clikart_placement;

/* The stream that work on a bare device goes to now; the caller releases it. */
CLIKART_API clikart_stream* clikart_resolve(const char* device);
/* Sets the stream that the calling thread's work on a bare device goes to; NULL: its own again.  `previous` (may be NULL)
 * receives what was set before, owned by the caller, or NULL. */
CLIKART_API int clikart_set_stream(const char* device, const clikart_stream* stream, clikart_stream** previous);
/* Sets the device on which the calling thread makes tensors that have neither inputs nor a placement; NULL: the CPU.
 * "meta": tensors with shape and dtype and no storage. */
CLIKART_API int clikart_set_device(const char* device);
/* As it was set, NULL when it was not. */
CLIKART_API const char* clikart_get_device(void);

/* What becomes of the calling thread's calls. */
typedef int32_t clikart_mode;
enum {
    CLIKART_MODE_EAGER = 0,   /* they are submitted */
    CLIKART_MODE_TRACING = 1, /* they are deferred: submitted when somebody reads, waits for or starts what they make */
    CLIKART_MODE_CAPTURE = 2  /* they become nodes of the graph that is recorded; clikart_capture_begin sets it */
};
CLIKART_API clikart_mode clikart_get_mode(void);
/* Returns the previous mode, or -1 with an error: an unknown mode, or CAPTURE outside of a recording. */
CLIKART_API clikart_mode clikart_set_mode(clikart_mode mode);

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

CLIKART_API void clikart_tensor_retain(const clikart_tensor* tensor);
CLIKART_API void clikart_tensor_release(clikart_tensor* tensor);

/* A tensor with a copy of `data`, row-major elements of the C type that docs/c_abi.md lists for the dtype.  A scalar
 * has rank 0 and may pass NULL for the shape. */
CLIKART_API clikart_tensor* clikart_tensor_from_data(const void* data, clikart_dtype dtype, const int64_t* shape, size_t rank);

/* Numbers as operands.  They are 0-d and give way to tensors in type promotion, as a Python number does. */
CLIKART_API clikart_tensor* clikart_scalar_float(double value);
CLIKART_API clikart_tensor* clikart_scalar_int(int64_t value);
/* The same as clikart_scalar_int for what that can hold; a larger number meets uint64 tensors, floats and bools, and no
 * narrower integers (CLIKART_ERROR_OVERFLOW). */
CLIKART_API clikart_tensor* clikart_scalar_uint(uint64_t value);
CLIKART_API clikart_tensor* clikart_scalar_bool(bool value);

/* A tensor over memory of the caller's. */
typedef struct clikart_borrow {
    size_t struct_size; /* the caller sets it to sizeof(clikart_borrow) */
    void* data;         /* the first element, aligned as its type; not NULL unless there are no elements */
    const int64_t* shape;
    const int64_t* strides; /* in elements, may be negative; NULL: row-major without gaps */
    size_t rank;
    clikart_dtype dtype;
    bool writable;                    /* false: operators refuse to write there */
    void (*release)(void* user_data); /* called once, on any thread, when the memory is needed no more; must not wait; may be NULL */
    void* user_data;
    uint64_t token; /* not 0: instead of a call, clikart_take_returned will report it */
} clikart_borrow;
/* Nothing is copied: what operators write in place appears in the memory, and what the host writes there is seen by what
 * runs after it.  Memory of bools holds 0 or 1.  The host must not write while work that uses the memory is pending, nor read while such work writes.
 * On failure NULL, and the memory is not kept. */
CLIKART_API clikart_tensor* clikart_tensor_borrow(const clikart_borrow* what);
/* Writes up to `room` tokens of borrowed memory that is needed no more, each once; returns how many. */
CLIKART_API size_t clikart_take_returned(uint64_t* tokens, size_t room);

/* Metadata; never waits, except for the shape and the number of elements of a result whose size depends on data
 * (clikart_nonzero): these wait for the operator, and are NULL or -1 with an error when it failed.  Shape and strides (in
 * elements) have rank entries and live as long as the tensor. */
CLIKART_API clikart_dtype clikart_tensor_dtype(const clikart_tensor* tensor);
CLIKART_API size_t clikart_tensor_rank(const clikart_tensor* tensor);
CLIKART_API const int64_t* clikart_tensor_shape(const clikart_tensor* tensor);
CLIKART_API const int64_t* clikart_tensor_strides(const clikart_tensor* tensor);
CLIKART_API int64_t clikart_tensor_numel(const clikart_tensor* tensor);
CLIKART_API bool clikart_tensor_is_contiguous(const clikart_tensor* tensor);
/* What calls look at: dtype, kind and index of the device, rank, whether it is dense, the sizes and, unless it is dense, the strides, of one tensor behind
   the other; equal for lists of tensors that lie the same way.  Writes at most `room` numbers and returns how many there are; -1 on
   failure.  Waits for sizes that are not known yet; while calls are run and recorded, the sizes then count as asked for. */
CLIKART_API int64_t clikart_tensor_layouts(const clikart_tensor* const* tensors, size_t n_tensors, int64_t* layouts, size_t room);
/* "cpu", "meta"; static text. */
CLIKART_API const char* clikart_tensor_device(const clikart_tensor* tensor);
/* False when asking for the shape would wait. */
CLIKART_API bool clikart_tensor_size_known(const clikart_tensor* tensor);
/* False for memory that was borrowed read-only. */
CLIKART_API bool clikart_tensor_is_writable(const clikart_tensor* tensor);
/* Whether one may be a view of the other: their elements lie in one piece of memory. */
CLIKART_API bool clikart_tensor_shares_storage(const clikart_tensor* a, const clikart_tensor* b);
/* True for a tensor that only stands for a value, while a graph is recorded. */
CLIKART_API bool clikart_tensor_is_stand_in(const clikart_tensor* tensor);

/* Where a tensor's value is; never waits. */
typedef int32_t clikart_status;
enum {
    CLIKART_STATUS_UNSCHEDULED = 0, /* nothing computes it: deferred, standing in for a value, or without storage */
    CLIKART_STATUS_EVALUATED = 1,   /* submitted or computed */
    CLIKART_STATUS_AVAILABLE = 2    /* born with data */
};
/* -1 with an error for NULL. */
CLIKART_API clikart_status clikart_tensor_status(const clikart_tensor* tensor);
/* 1 when reading would not wait, 0 when it would, -1 with an error for NULL. */
CLIKART_API int clikart_tensor_is_ready(const clikart_tensor* tensor);
/* Submits the deferred calls that the value waits for; does not wait. */
CLIKART_API int clikart_tensor_start(const clikart_tensor* tensor);

/* Calls `callback` once when the value is there or its computation failed (then with the error, which lives as long as the
 * call): on a thread of the callback pool, or here and now if that is already so.  The tensor's storage is kept until then.
 * Callbacks may block, read and submit; they should be short, because they share the pool.  They are registered in order
 * and may run beside each other.  What is deferred is submitted first.
 * `destroy` (may be NULL) is called with user_data exactly once, after the callback, or without it: when this call fails.
 * A process that exits calls what is due first; in the child of a fork, callbacks of the parent are not called. */
typedef void (*clikart_callback)(const clikart_tensor* tensor, const clikart_error* error, void* user_data);
CLIKART_API int clikart_tensor_on_complete(const clikart_tensor* tensor, clikart_callback callback, void* user_data, void (*destroy)(void* user_data));

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
/* Copies `from`, broadcast and converted, over the elements of `to`.  Like an operator with an underscore at its end: it
 * returns at once, and what was called before still sees the old values. */
CLIKART_API int clikart_copy_(clikart_tensor* to, const clikart_tensor* from);
/* As the padding of a convolution: as many zeros as the result needs to have x's sizes, for which the stride must be 1; of an odd
 * number of them one more is at the end. */
enum { CLIKART_PADDING_SAME = -2147483647 };
/* Sums of products in index notation, "ij,jk->ik": letters name dimensions, "..." stands for any number of leading ones, a
 * letter that is repeated in one term takes the diagonal, and names that the result lacks are summed over.  Without "->" the
 * result has the names that occur once, in alphabetical order.  The `n` operands have one dtype; they are multiplied from left
 * to right. */
CLIKART_API clikart_tensor* clikart_einsum(const char* equation, const clikart_tensor* const* operands, size_t n);
/* Waits, then copies all elements in row-major order to `data`, which has room for `bytes` bytes, exactly numel times
 * the element's size. */
CLIKART_API int clikart_tensor_copy_to(const clikart_tensor* tensor, void* data, size_t bytes);
/* The same for a part, of which nothing else is read: shape[d] elements from start[d] on along each dimension. */
CLIKART_API int clikart_tensor_copy_box_to(const clikart_tensor* tensor, const int64_t* start, const int64_t* shape, void* data, size_t bytes);

/* ---- exchange with other libraries ------------------------------------------------------------------------------ */

/* Memory changes hands as DLPack describes it: in a DLManagedTensor, or with `versioned` in a DLManagedTensorVersioned of
 * version 1.  Their declarations are DLPack's; here they are void*. */

/* Waits for the value and for work that reads the memory now, as clikart_tensor_wait_writable does.  The structure keeps
 * the memory until its deleter is called, once, on any thread, with nothing of the library held.  `copy`: over a copy that
 * belongs to the structure alone.  Strides may be negative or 0.  NULL with an error: no value to come, or memory that is
 * read-only while the structure is not versioned and so cannot say it. */
CLIKART_API void* clikart_tensor_to_dlpack(const clikart_tensor* tensor, bool versioned, bool copy);
/* A tensor over the memory of a structure that the caller owns; as clikart_tensor_borrow.  When it is needed no more the
 * deleter is called, once, on any thread; with a token that is not 0 the token is reported instead, and the caller calls
 * it.  On failure (another device, a dtype that does not exist here, an address that is not aligned for it) NULL, and the
 * structure is still the caller's. */
CLIKART_API clikart_tensor* clikart_tensor_from_dlpack(void* managed, bool versioned, uint64_t token);
/* Calls the deleter of a structure. */
CLIKART_API void clikart_dlpack_delete(void* managed, bool versioned);

/* For Python, which hands such structures around in capsules: clikart_dlpack_release_capsule is a capsule's destructor
 * that deletes the structure nobody took out.  It looks into the capsule with the functions of Python's C API that were
 * given before: PyCapsule_IsValid and PyCapsule_GetPointer. */
CLIKART_API void clikart_dlpack_set_capsule_functions(int (*is_valid)(void* capsule, const char* name), void* (*get_pointer)(void* capsule, const char* name));
CLIKART_API void clikart_dlpack_release_capsule(void* capsule);

/* ---- streams ---------------------------------------------------------------------------------------------------- */

/* A new stream: work on it runs in order, beside the work of other streams. */
CLIKART_API clikart_stream* clikart_stream_create(const char* device);
/* The device's synchronous stream: a call on it is over before it returns, and then reports its failure. */
CLIKART_API clikart_stream* clikart_stream_default(const char* device);
/* The calling thread's own stream, on which unplaced operators run unless another was set. */
CLIKART_API clikart_stream* clikart_stream_current(void);
/* The stream a tensor's operator rode; the calling thread's for a tensor that was born with data.  Two handles name
 * the same stream when they are the same pointer. */
CLIKART_API clikart_stream* clikart_tensor_stream(const clikart_tensor* tensor);
CLIKART_API void clikart_stream_retain(const clikart_stream* stream);
CLIKART_API void clikart_stream_release(clikart_stream* stream);
/* False for NULL. */
CLIKART_API bool clikart_stream_is_default(const clikart_stream* stream);
/* "cpu"; static text; NULL for NULL. */
CLIKART_API const char* clikart_stream_device(const clikart_stream* stream);
/* Waits until all that was submitted is over.  -1 with the first failure of its work that nobody was told of yet; failures
 * stay with the results they belong to all the same. */
CLIKART_API int clikart_stream_synchronize(const clikart_stream* stream);
/* The same for at most timeout_ns nanoseconds (negative: as long as it takes).  1: over, 0: not yet, -1 as above. */
CLIKART_API int clikart_stream_wait(const clikart_stream* stream, int64_t timeout_ns);
/* The same for all streams of a device. */
CLIKART_API int clikart_device_wait(const char* device, int64_t timeout_ns);
/* 1 when all that was submitted is over, 0 when not, -1 with an error.  Does not wait. */
CLIKART_API int clikart_stream_is_idle(const clikart_stream* stream);
/* Waits until all streams of the process are idle. */
CLIKART_API void clikart_drain(void);
/* Waits until what was submitted is over and refuses further work meanwhile, so that the wait ends whatever other threads
 * do.  For hosts that end before the process does. */
CLIKART_API void clikart_finish(void);
/* The same for at most timeout_ns nanoseconds.  1: over; 0: not yet, and work is refused until a later call returns 1.
 * Callbacks that are due are waited for at most five seconds, here and at the end of the process. */
CLIKART_API int clikart_finish_within(int64_t timeout_ns);
/* All that is queued now fails instead of running; what runs goes on to its end. */
CLIKART_API void clikart_cancel_queued(void);
/* Refuses further work and waits for what was submitted.  Happens by itself when the process exits; for hosts that
 * take down what the library needs before that. */
CLIKART_API void clikart_shutdown(void);

/* Sets whether each operator of the calling thread is over before its call returns, which then also reports the
 * operator's failure; returns the previous setting. */
CLIKART_API bool clikart_set_synchronous(bool synchronous);

/* How many threads compute an operator at most, besides those that wait for others: at first CLIKA_NUM_THREADS, or what CPU affinity and control group allow.
 */
CLIKART_API int32_t clikart_num_threads(void);
CLIKART_API int clikart_set_num_threads(int32_t threads);

/* From now on what runs is noted: operators, and the nodes of graphs.  For the whole process. */
CLIKART_API int clikart_profile_begin(void);
/* No more is; writes what was to a file in the JSON form of traces that Perfetto and Chrome read. */
CLIKART_API int clikart_profile_end(const char* path);

/* For testing what a program does when an operator fails: after `after` more calls of the operator's kernel, on whatever
 * thread, the next one fails; a negative number takes it back. */
CLIKART_API int clikart_fail_kernel(clikart_op_code op, int64_t after);

/* For bindings whose host language finds out where a call was made after it: two counters to look at after each call.
 * words[0] is not 0 when some thread has calls that wait for clikart_tell_origin, words[1] when clikart_take_returned has
 * something.  Valid for ever; from the first call of this function on the first is counted. */
CLIKART_API const int32_t* clikart_attention(void);
/* Says where the calling thread's calls were made that were queued since it last did. */
CLIKART_API int clikart_tell_origin(const char* where);

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

/* From now on the calling thread's operators are recorded instead of run.  Inside of a recording that runs them (see below), which
 * is given up then and goes on when this one has ended; else one recording at a time.  0, or -1 with an error. */
CLIKART_API int clikart_capture_begin(void);
/* The graph's next input: a tensor with shape and dtype and no value. */
CLIKART_API clikart_tensor* clikart_capture_input(const char* name, clikart_dtype dtype, const int64_t* shape, size_t rank);
/* From now on the calling thread's operators are recorded, and run as well.  A value that is read, memory that is written in
 * place and a result whose size depends on data cannot be recorded: the calls go on, and the graph is given up, or, where that
 * is to be strict, the call fails with CLIKART_ERROR_RUNTIME.  0, or -1 with an error. */
CLIKART_API int clikart_capture_begin_running(bool strict);
/* The graph's next input, over the memory of a tensor with a value. */
CLIKART_API clikart_tensor* clikart_capture_value(const char* name, const clikart_tensor* value);
/* Why the graph was given up, and where, as far as clikart_tell_origin or a tag told; "" when it was not; NULL with an error without
 * a recording.  Valid until the thread's next call of this. */
CLIKART_API const char* clikart_capture_obstacle(void);
/* 1 when shape, strides or number of elements of something that depends on an input were asked for, 0 when not, -1 with an error.  After
 * clikart_capture_begin_running the graph may hold only for these sizes then. */
CLIKART_API int clikart_capture_sizes_asked(void);
/* Where that was first, as far as clikart_tell_origin or a tag told, else ""; NULL with an error without a recording.  Valid until the
 * thread's next call of this. */
CLIKART_API const char* clikart_capture_size_place(void);
/* As clikart_capture_begin_running, for a graph that is to hold for other sizes as well: with clikart_graph_options.any_sizes.  What is
 * asked of shapes and strides becomes a condition of the graph (see clikart_graph_holds), but for the sizes that these functions tell: */
CLIKART_API int clikart_capture_begin_any_sizes(bool strict);
/* A size of a tensor; where it may be another one for other inputs, a number far below zero that stands for it: in whole numbers among the
 * arguments of operators, and below, until the recording ends.  `now`, unless NULL, receives the size.  -1 with an error. */
CLIKART_API int64_t clikart_capture_size(const clikart_tensor* tensor, size_t dim, int64_t* now);
typedef int32_t clikart_size_operation;
enum {
    CLIKART_SIZE_ADD = 0,
    CLIKART_SIZE_SUB = 1,
    CLIKART_SIZE_MUL = 2,
    CLIKART_SIZE_FLOOR_DIVIDE = 3, /* rounded down, and the remainder has the sign of b */
    CLIKART_SIZE_REMAINDER = 4,
    CLIKART_SIZE_EQUAL = 5, /* 1 or 0, as the next */
    CLIKART_SIZE_LESS = 6,
};
/* What stands for a number that is computed of two, each such a one or a plain number.  -1 with an error. */
CLIKART_API int64_t clikart_capture_computed_size(clikart_size_operation operation, int64_t a, int64_t b);
/* From now on the graph counts on what stands for a number being what it is now. */
CLIKART_API int clikart_capture_require_size(int64_t size);
/* An operand that is at each run the number that `size` stands for, as clikart_scalar_int makes one. */
CLIKART_API clikart_tensor* clikart_capture_size_number(int64_t size);
/* The graph is given up, and `why` its obstacle; or, where the recording is strict, this fails with CLIKART_ERROR_RUNTIME. */
CLIKART_API int clikart_capture_give_up(const char* why);

/* Regions: what the thread calls between a begin and its end is recorded, and not run, as a program of its own, which a step of the graph
 * runs as often as values say.  It may read all that is known outside of it, and neither writes over memory nor draws random numbers.
 * One may be open inside another. */
CLIKART_API int clikart_region_begin(void);
/* The region's next parameter: a stand-in with the dtype and shape of `like`. */
CLIKART_API clikart_tensor* clikart_region_input(const clikart_tensor* like);
/* Ends the innermost region, also when it fails. */
CLIKART_API clikart_region* clikart_region_end(const clikart_tensor* const* outputs, size_t n_outputs);
/* Ends it, if there is one, and drops it. */
CLIKART_API void clikart_region_cancel(void);
CLIKART_API void clikart_region_retain(const clikart_region* region);
CLIKART_API void clikart_region_release(clikart_region* region);
/* Of two regions without parameters, with results of the same dtypes and shapes, the one that `condition` (bool, no dimensions) says.
 * Receives new handles of its results; where calls are run, it is as well, and waits for the condition. */
CLIKART_API int clikart_cond(const clikart_tensor* condition, const clikart_region* on_true, const clikart_region* on_false, clikart_tensor** outputs,
                             size_t n_outputs);
/* While `condition` is true of the carried values, `body` makes them anew; both are regions with a parameter for each. */
CLIKART_API int clikart_while_loop(const clikart_tensor* const* carried, const clikart_region* condition, const clikart_region* body, clikart_tensor** outputs,
                                   size_t n_outputs);

/* Ends the recording, also when it fails, and returns what the outputs depend on as a graph. */
CLIKART_API clikart_graph* clikart_capture_end(const clikart_tensor* const* outputs, const char* const* names, size_t n_outputs);
typedef struct clikart_graph_options {
    size_t struct_size; /* the caller sets it to sizeof(clikart_graph_options) */
    bool any_sizes;     /* the graph runs for inputs of the same ranks and any sizes, by the shape rules of its operators; conditions come
                         * with clikart_capture_begin_any_sizes */
    int32_t optimize;   /* 0: as it was recorded, 1 and 2: steps are put together; the results have the same bits for all */
} clikart_graph_options;
/* The same with options; NULL: { .any_sizes = false, .optimize = 2 }. */
CLIKART_API clikart_graph* clikart_capture_end_with(const clikart_tensor* const* outputs, const char* const* names, size_t n_outputs,
                                                    const clikart_graph_options* options);
/* Whether the calling thread is recording a graph, in either way. */
CLIKART_API bool clikart_capturing(void);
/* Ends the recording, if there is one, and drops it. */
CLIKART_API void clikart_capture_cancel(void);

CLIKART_API void clikart_graph_retain(const clikart_graph* graph);
CLIKART_API void clikart_graph_release(clikart_graph* graph);
CLIKART_API size_t clikart_graph_input_count(const clikart_graph* graph);
CLIKART_API size_t clikart_graph_output_count(const clikart_graph* graph);
/* Valid as long as the graph; NULL with an error when `index` is out of range, as for the nodes below. */
CLIKART_API const char* clikart_graph_input_name(const clikart_graph* graph, size_t index);
CLIKART_API const char* clikart_graph_output_name(const clikart_graph* graph, size_t index);
/* The number of the node that makes an output, or -1 with an error. */
CLIKART_API int32_t clikart_graph_output_node(const clikart_graph* graph, size_t index);
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
    size_t n_epilogues; /* operators that are computed with it on the spot; its last inputs are operands of theirs */
    bool in_place;      /* it writes over its first input, and nobody reads what it makes itself */
    const char* place;  /* where the call was made that it comes from, as long as the graph lives; NULL: unknown */
    size_t n_regions;   /* programs that it runs: of a CLIKART_OP_COND the branches, of a CLIKART_OP_WHILE_LOOP condition and body */
} clikart_node;
CLIKART_API int clikart_graph_node(const clikart_graph* graph, size_t index, clikart_node* node);
/* The operator of a node's epilogue `k`, or a negative number with an error. */
CLIKART_API clikart_op_code clikart_graph_node_epilogue(const clikart_graph* graph, size_t index, size_t k);
/* A new handle for a node's region `k`, as a graph of its own whose inputs are the node's, or NULL with an error. */
CLIKART_API clikart_graph* clikart_graph_region(const clikart_graph* graph, size_t index, size_t k);
/* Writes the graph, with the tensors it holds, to a file, which docs/graph_files.md describes. */
CLIKART_API int clikart_graph_save(const clikart_graph* graph, const char* path);
/* Nothing in the file is trusted.  Tensors are mapped: the file has to stay as it is while the graph lives.  `optimize`: see
 * clikart_graph_options. */
CLIKART_API clikart_graph* clikart_graph_load(const char* path, int32_t optimize);
/* Runs the graph on inputs in order; `outputs` has room for clikart_graph_output_count handles and receives new ones.
 * On failure nothing is written to it. */
CLIKART_API int clikart_graph_run(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, clikart_tensor** outputs, size_t n_outputs);
/* The same, if clikart_tensor_layouts of the inputs are these and the thread records nothing: 1.  Else nothing is done: 0.  For wrappers
 * that choose among graphs, and mostly take the one they took before. */
CLIKART_API int clikart_graph_run_like(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, const int64_t* layouts,
                                       size_t n_layouts, clikart_tensor** outputs, size_t n_outputs);
/* As clikart_graph_run; the results go to tensors of the caller's, which have the outputs' shapes and dtypes, and may be inputs. */
CLIKART_API int clikart_graph_run_into(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs, clikart_tensor* const* outputs,
                                       size_t n_outputs);
/* Whether a graph for any sizes is the right one for such inputs: 1 when what it counts on holds, and its operators take them, else 0; of
 * others 1.  -1 with an error for inputs that do not fit at all.  A run where it does not hold fails with CLIKART_ERROR_VALUE. */
CLIKART_API int clikart_graph_holds(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs);
/* Why it is not, for readers, as what a sentence says of the graph: "holds where ..." or "does not take that: ..."; "" where it is the right one.
 * NULL with an error.  Valid until the thread's next call of this. */
CLIKART_API const char* clikart_graph_mismatch(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs);
CLIKART_API size_t clikart_graph_condition_count(const clikart_graph* graph);
/* One thing that it counts on, with the line it comes from, for readers; valid until the thread's next call of this. */
CLIKART_API const char* clikart_graph_condition(const clikart_graph* graph, size_t index);
/* How many bytes a run takes, its results included, on dense inputs of the shapes that are one behind the other in `sizes`; NULL: those
 * it was recorded for.  What kernels take for themselves for a while comes on top.  -1 on failure. */
CLIKART_API int64_t clikart_graph_peak(const clikart_graph* graph, const int64_t* sizes, const size_t* ranks, size_t n_inputs);
/* Runs the graph as always and as it was recorded, operator by operator, and compares all bits.  Empty when they agree, else what
 * differs first; valid until the thread's next audit.  NULL on failure, as for graphs that write over memory or draw random numbers. */
CLIKART_API const char* clikart_graph_audit(const clikart_graph* graph, const clikart_tensor* const* inputs, size_t n_inputs);
/* Whether that is possible. */
CLIKART_API bool clikart_graph_can_be_audited(const clikart_graph* graph);
/* For testing that audits find what is wrong: fused operators compute something else from now on, or what they should again. */
CLIKART_API void clikart_spoil_fused(bool spoil);
/* As clikart_graph_run, with inputs by name, in any order. */
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

/* Bytes of tensor memory, scratch memory and packed operands (not memory that is borrowed): handed out now, and the most at
 * once so far. */
CLIKART_API int64_t clikart_memory_current(void);
CLIKART_API int64_t clikart_memory_peak(void);
/* The peak counts from now on. */
CLIKART_API void clikart_memory_reset_peak(void);
/* Bytes kept for reuse. */
CLIKART_API int64_t clikart_memory_cached(void);
/* From now on no more than `bytes` are handed out at once: what needs more fails with a memory error, and works again when
 * there is room.  Negative: no limit.  Returns the previous limit, negative when there was none. */
CLIKART_API int64_t clikart_memory_set_limit(int64_t bytes);
/* Returns cached memory to the system. */
CLIKART_API void clikart_memory_trim(void);

/* ---- random numbers -------------------------------------------------------------------------------------------- */

/* Where random operators draw from: Philox 4x32-10 with a seed, and an offset in blocks of four 32-bit numbers.  A call
 * reserves what it draws when it is made, so the numbers do not depend on threads or on when it runs.  Any thread may use
 * one.  NULL stands for the process's own, which the operating system seeds until clikart_generator_set_state(NULL, ...). */
CLIKART_API clikart_generator* clikart_generator_create(uint64_t seed);
CLIKART_API void clikart_generator_retain(const clikart_generator* generator);
CLIKART_API void clikart_generator_release(clikart_generator* generator);
/* 0, or -1 with the error set. */
CLIKART_API int clikart_generator_state(const clikart_generator* generator, uint64_t* seed, uint64_t* offset);
CLIKART_API int clikart_generator_set_state(clikart_generator* generator, uint64_t seed, uint64_t offset);

#ifdef __cplusplus
}
#endif

#endif
