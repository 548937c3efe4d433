// What the two classification losses share.
#pragma once

#include "ops/common.h"

namespace ulpscope::ops {

/// Output 0: a scalar, or one loss per target with reduction "none". Inputs: values (N, C, d...), targets (N, d...).
void infer_loss(InferContext& ctx);

/// loss = -weight[target] * log_probabilities[target] per target, reduced as the attribute says. A target that equals
/// ignore_index counts for nothing; other targets must be in [0, C). "mean" divides by the sum of the weights.
void negative_log_likelihood(KernelContext& ctx, const Tensor& log_probabilities);

}  // namespace ulpscope::ops
