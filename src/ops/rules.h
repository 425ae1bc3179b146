// The named dtype and shape rules that the operator table refers to.
// Each checks what it needs and throws an Error that starts with the operator's name and shows shapes and dtypes.
#pragma once

#include "ops/op_info.h"

namespace clikart {

DTypes dtype_same(const OpCall&);             // as the input
DTypes dtype_same_number(const OpCall&);      // as the input, which is not bool
DTypes dtype_given(const OpCall&);            // the attribute `dtype`
DTypes dtype_given_or_value(const OpCall&);   // the optional attribute `dtype`, else what the numbers promote to
DTypes dtype_given_or_number(const OpCall&);  // the same, int64 for bools
DTypes dtype_promote(const OpCall&);          // torch's promotion of both inputs
DTypes dtype_promote_number(const OpCall&);   // the same, not bool
DTypes dtype_promote_float(const OpCall&);    // the same, integers and bools become float32
DTypes dtype_promote_list(const OpCall&);     // the promotion of all inputs
DTypes dtype_promote_product(const OpCall&);  // equal dtypes, numbers
DTypes dtype_float(const OpCall&);            // as the input, which is floating point
DTypes dtype_sum(const OpCall&);              // as the input, integers and bools become int64
DTypes dtype_index(const OpCall&);            // int64, computed from the input's dtype
DTypes dtype_integer(const OpCall&);          // the promotion of integers
DTypes dtype_bitwise(const OpCall&);          // the promotion of integers or bools
DTypes dtype_compare(const OpCall&);          // bool, computed in the promotion of both inputs
DTypes dtype_logical(const OpCall&);          // bool, computed from bools
DTypes dtype_predicate(const OpCall&);        // bool, computed from the input's dtype
DTypes dtype_where(const OpCall&);            // the promotion of all but the first input, which is bool

void shape_same(const OpCall&, OutputSpec&);
void shape_broadcast(const OpCall&, OutputSpec&);  // of all inputs
void shape_given(const OpCall&, OutputSpec&);
void shape_arange(const OpCall&, OutputSpec&);
void shape_reduce(const OpCall&, OutputSpec&);
void shape_reduce_nonempty(const OpCall&, OutputSpec&);
void shape_softmax(const OpCall&, OutputSpec&);
void shape_concat(const OpCall&, OutputSpec&);
void shape_matmul(const OpCall&, OutputSpec&);
void shape_nonzero(const OpCall&, OutputSpec&);
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

/// The shape that two broadcast to, or false.
bool broadcast_shapes(const Dims& a, const Dims& b, Dims& out);

/// `dim` counted from the front.  Throws IndexError outside [-rank, rank); a 0-d tensor has one dimension here, as in
/// torch, when `scalar_has_one` says so.
int normalized_dim(const OpCall& call, int64_t dim, int rank, bool scalar_has_one = false);

}  // namespace clikart
