// Conversion of a tensor to a declared type, in physical types.
#pragma once

#include "ops/common.h"

namespace ulpscope::ops {

/// out[i] = in[i] converted to `declared`; `out` has the physical type of it. For float16 and bfloat16 the float32 in
/// `out` holds the narrow value, rounded once from the elements of `in`.
void cast_elements(const KernelContext& ctx, const Tensor& in, DataType declared, Tensor& out);

/// The kernel of Cast and CastLike.
void run_cast(KernelContext& ctx);

}  // namespace ulpscope::ops
