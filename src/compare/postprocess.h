// What happens to outputs before they are compared.
#pragma once

#include "compare/name_values.h"
#include "compare/results.h"

namespace ulpscope {

/// Indices (int64) of the k largest values along an axis, largest first, the first of equals first; k is limited to the
/// length. NaN come last. Throws Error(kInvalidArgument) for an axis out of range.
Tensor top_k_indices(const Tensor& tensor, const TopK& top_k);

/// Replaces the outputs that `top_k` names (the empty name: all); others stay. Throws Error(kInvalidArgument) naming
/// the output.
void apply_top_k(RunResults& results, const PerName<TopK>& top_k);

}  // namespace ulpscope
