// What Scatter and ScatterElements share.
#pragma once

#include "graph/op.h"

namespace ulpscope::ops {

void infer_scatter_elements(InferContext& ctx);
/// A copy of input 0 in which the elements that input 1 points at are combined with those of input 2, in order.
void run_scatter_elements(KernelContext& ctx);
/// None for the reductions mul, max and min.
void adjoint_scatter_elements(AdjointContext& ctx);

}  // namespace ulpscope::ops
