// The named dtype and shape rules that the operator table refers to.
// Each checks what it needs and throws an Error that starts with the operator's name and shows shapes and dtypes.
#pragma once

#include <array>

#include "ops/op_info.h"

namespace clikart {

/// A tensor's dtype; of a Python float, which gives way to others, what it is where nothing else says so: float32.
inline DType own_dtype(const Tensor& t) {
    return t.weak && t.dtype() == DType::Float64 ? DType::Float32 : t.dtype();
}

/// Refuses a number that an integer dtype has not; `who` is the operator.
void require_fits(const char* who, const Tensor& number, DType);
/// The same for all numbers among the inputs.
void require_fitting_numbers(const OpCall&, DType);

DTypes dtype_same(const OpCall&);             // as the input
DTypes dtype_same_number(const OpCall&);      // as the input, which is not bool
DTypes dtype_given(const OpCall&);            // the attribute `dtype`
DTypes dtype_full(const OpCall&);             // the dtype given, else the value's; a number it has not is refused
DTypes dtype_given_or_number(const OpCall&);  // the same, int64 for bools
DTypes dtype_promote(const OpCall&);          // torch's promotion of both inputs
DTypes dtype_promote_fitting(const OpCall&);  // the same; a number the result's dtype has not is refused instead of wrapped
DTypes dtype_promote_number(const OpCall&);   // the same, not bool
DTypes dtype_promote_float(const OpCall&);    // the same, integers and bools become float32
DTypes dtype_promote_list(const OpCall&);     // the promotion of all inputs
DTypes dtype_promote_product(const OpCall&);  // equal dtypes, numbers
DTypes dtype_float(const OpCall&);            // as the input, which is floating point
DTypes dtype_sum(const OpCall&);              // as the input, integers and bools become int64
DTypes dtype_sum_given(const OpCall&);        // the optional attribute `dtype`, else the same
DTypes dtype_reduce_float(const OpCall&);     // as the input, integers and bools become float32
DTypes dtype_with_index(const OpCall&);       // as the input, and int64
DTypes dtype_index(const OpCall&);            // int64, computed from the input's dtype
DTypes dtype_integer(const OpCall&);          // the promotion of integers
DTypes dtype_bitwise(const OpCall&);          // the promotion of integers or bools
DTypes dtype_compare(const OpCall&);          // bool, computed in the promotion of both inputs
DTypes dtype_logical(const OpCall&);          // bool, computed from bools
DTypes dtype_predicate(const OpCall&);        // bool, computed from the input's dtype
DTypes dtype_where(const OpCall&);            // the promotion of all but the first input, which is bool
// Of operators that sort, search, and go by places; see dtype_rules_index.cpp.
DTypes dtype_with_places(const OpCall&);    // as the input, and int64 places
DTypes dtype_searchsorted(const OpCall&);   // int64, computed in the promotion of both inputs
DTypes dtype_bincount(const OpCall&);       // int64 for counts of integers, else a float for sums of weights
DTypes dtype_indexed(const OpCall&);        // as the first input; the others are integers, which stay as they are
DTypes dtype_embedding(const OpCall&);      // as the second input; the first is integers
DTypes dtype_scatter(const OpCall&);        // as the first input; the second is integers, the third is cast
DTypes dtype_index_put(const OpCall&);      // as the first input and the second, unless that is a number; all others are integers
DTypes dtype_masked(const OpCall&);         // as the first input; the second is bool, a third is cast
DTypes dtype_convolution(const OpCall&);    // floats, all inputs of one dtype
DTypes dtype_max_indices(const OpCall&);    // as the input, which is not bool, and int64
DTypes dtype_norm(const OpCall&);           // as the first input, all floating point; the others stay what they are
DTypes dtype_attention(const OpCall&);      // three of one floating-point dtype, perhaps a mask
DTypes dtype_random_float(const OpCall&);   // the optional attribute `dtype`, floating point, else float32
DTypes dtype_random_number(const OpCall&);  // the same, not bool, else int64
DTypes dtype_multinomial(const OpCall&);    // int64, computed from floats

DTypes dtype_given_or_float32(const OpCall&);  // the optional attribute `dtype`, else float32
DTypes dtype_one_hot(const OpCall&);           // int64, computed from integers
DTypes dtype_clamp(const OpCall&);             // as promote_number, of at least two inputs
DTypes dtype_prelu(const OpCall&);             // equal dtypes that compute in floating point

void shape_same(const OpCall&, OutputSpec&);
void shape_broadcast(const OpCall&, OutputSpec&);  // of all inputs
void shape_given(const OpCall&, OutputSpec&);
void shape_arange(const OpCall&, OutputSpec&);
void shape_reduce(const OpCall&, OutputSpec&);
void shape_reduce_nonempty(const OpCall&, OutputSpec&);
void shape_reduce_dim(const OpCall&, OutputSpec&);  // one dimension, which is not empty
void shape_var(const OpCall&, OutputSpec&);
void shape_norm(const OpCall&, OutputSpec&);
void shape_softmax(const OpCall&, OutputSpec&);  // as the input; the first attribute is a dimension of it
void shape_concat(const OpCall&, OutputSpec&);
void shape_matmul(const OpCall&, OutputSpec&);
void shape_nonzero(const OpCall&, OutputSpec&);
// Of operators that sort, search, and go by places; see shape_rules_index.cpp.
void shape_sort(const OpCall&, OutputSpec&);
void shape_topk(const OpCall&, OutputSpec&);
void shape_kthvalue(const OpCall&, OutputSpec&);
void shape_found(const OpCall&, OutputSpec&);  // one dimension, whose size the kernel finds
void shape_searchsorted(const OpCall&, OutputSpec&);
void shape_bincount(const OpCall&, OutputSpec&);
void shape_gather(const OpCall&, OutputSpec&);
void shape_scatter(const OpCall&, OutputSpec&);
void shape_take(const OpCall&, OutputSpec&);
void shape_index_select(const OpCall&, OutputSpec&);
void shape_index(const OpCall&, OutputSpec&);
void shape_index_put(const OpCall&, OutputSpec&);
void shape_embedding(const OpCall&, OutputSpec&);
void shape_masked_select(const OpCall&, OutputSpec&);
void shape_masked_fill(const OpCall&, OutputSpec&);
void shape_masked_scatter(const OpCall&, OutputSpec&);
// Windows that slide over spatial dimensions, channels last.
void shape_convolution(const OpCall&, OutputSpec&);
void shape_transposed_convolution(const OpCall&, OutputSpec&);
void shape_max_pool(const OpCall&, OutputSpec&);
void shape_avg_pool(const OpCall&, OutputSpec&);
void shape_adaptive_pool(const OpCall&, OutputSpec&);
void shape_last_norm(const OpCall&, OutputSpec&);
void shape_group_norm(const OpCall&, OutputSpec&);
void shape_channel_norm(const OpCall&, OutputSpec&);
void shape_attention(const OpCall&, OutputSpec&);
void shape_rotary(const OpCall&, OutputSpec&);
void shape_uniform(const OpCall&, OutputSpec&);
void shape_normal(const OpCall&, OutputSpec&);
void shape_randint(const OpCall&, OutputSpec&);
void shape_dropout(const OpCall&, OutputSpec&);
void shape_multinomial(const OpCall&, OutputSpec&);
void shape_randperm(const OpCall&, OutputSpec&);
// Matrices.
void shape_linear(const OpCall&, OutputSpec&);
void shape_addmm(const OpCall&, OutputSpec&);
void shape_baddbmm(const OpCall&, OutputSpec&);
void shape_triangle(const OpCall&, OutputSpec&);  // as the input, which has two dimensions
// Views.
void shape_reshape(const OpCall&, OutputSpec&);
void shape_permute(const OpCall&, OutputSpec&);
void shape_slice(const OpCall&, OutputSpec&);
void shape_select(const OpCall&, OutputSpec&);
// More views.
void shape_expand(const OpCall&, OutputSpec&);
void shape_broadcast_to(const OpCall&, OutputSpec&);
void shape_transpose(const OpCall&, OutputSpec&);
void shape_squeeze(const OpCall&, OutputSpec&);
void shape_unsqueeze(const OpCall&, OutputSpec&);
void shape_flatten(const OpCall&, OutputSpec&);
void shape_unflatten(const OpCall&, OutputSpec&);
void shape_movedim(const OpCall&, OutputSpec&);
void shape_diagonal(const OpCall&, OutputSpec&);
void shape_unfold(const OpCall&, OutputSpec&);
void shape_narrow(const OpCall&, OutputSpec&);
void shape_view_dtype(const OpCall&, OutputSpec&);
void shape_as_strided(const OpCall&, OutputSpec&);
// What moves elements, and what follows from a few numbers.
void shape_stack(const OpCall&, OutputSpec&);
void shape_pad(const OpCall&, OutputSpec&);
void shape_diag_embed(const OpCall&, OutputSpec&);
void shape_one_hot(const OpCall&, OutputSpec&);
void shape_eye(const OpCall&, OutputSpec&);
void shape_linspace(const OpCall&, OutputSpec&);
void shape_logspace(const OpCall&, OutputSpec&);
void shape_prelu(const OpCall&, OutputSpec&);
void shape_glu(const OpCall&, OutputSpec&);

/// The shape that two broadcast to, or false.
bool broadcast_shapes(const Dims& a, const Dims& b, Dims& out);

/// `dim` counted from the front.  Throws IndexError outside [-rank, rank); a 0-d tensor has one dimension here, as in
/// torch, when `scalar_has_one` says so.
int normalized_dim(const OpCall& call, int64_t dim, int rank, bool scalar_has_one = false);

/// Which dimensions of the first input the attribute at position `dims` names; none where it is absent.  Throws ValueError for one that
/// is named twice, and as normalized_dim() does; a 0-d tensor has one dimension.
std::array<bool, kMaxRank> named_dims(const OpCall& call, int dims);

/// Throws ValueError for a result of more dimensions than there can be.
void check_result_rank(const OpCall& call, int rank);

}  // namespace clikart
