// What happens to outputs before they are compared.
#pragma once

#include "compare/name_values.h"
#include "compare/results.h"

namespace ulpscope {

/// Indices (int64) of the k largest values along an axis, largest first, the first of equals first; k is limited to the
/// length. NaN come last. Follows NumPy's argsort of the negated values, with its quirks for unsigned integers.
/// Throws Error(kInvalidArgument) for an axis out of range and for bool.
Tensor top_k_indices(const Tensor& tensor, const TopK& top_k);

/// Replaces the outputs that `top_k` names; others stay.
void apply_top_k(RunResults& results, const PerName<TopK>& top_k);

}  // namespace ulpscope
