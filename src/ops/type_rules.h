// Checks of the element types of inputs, for kernels that read several inputs as one C++ type.
#pragma once

#include <initializer_list>

#include "ops/common.h"

namespace ulpscope::ops {

/// Fails unless input `i` is absent, of a type not known yet, or held as `type` (float16 and float32 are held alike).
inline void require_type(const InferContext& ctx, int i, DataType type) {
  if (!ctx.has_input(i) || ctx.type(i) == DataType::kUndefined || type == DataType::kUndefined) return;
  if (physical_type(ctx.type(i)) != physical_type(type))
    ctx.fail(fmt::format("expected elements of type {} as input {}, got {}", name_of(type), i, name_of(ctx.type(i))));
}

/// As require_type, with the type of input 0, for each of `inputs`.
inline void require_type_of_first(const InferContext& ctx, std::initializer_list<int> inputs) {
  for (int i : inputs) require_type(ctx, i, ctx.type(0));
}

}  // namespace ulpscope::ops
