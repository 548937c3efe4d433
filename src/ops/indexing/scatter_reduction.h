// What the scatter operators do with elements and their updates.
#pragma once

#include "ops/common.h"

namespace ulpscope::ops {

/// Fails unless the attribute `reduction` is one that ONNX defines, for elements that it can combine, and the updates
/// (input 2) have the type of the data.
void check_reduction(const InferContext& ctx);

/// target[i] = reduction(target[i], updates[i]) for `count` elements; without a reduction, updates[i].
using Combine = void (*)(void* target, const void* updates, std::int64_t count);

/// For elements of this type. Integers wrap around; NaN wins in max and min.
Combine find_combine(const KernelContext& ctx, DataType type);

}  // namespace ulpscope::ops
