// Narrowing of a tensor to a declared type, in physical types.
#pragma once

#include "formats/numeric_format.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// out[i] = in[i] converted to `declared`; `out` has the physical type of it, and holds the narrow value, rounded once
/// from the elements of `in`. `conversion`: to the floats of 8 bits and less.
void cast_elements(const Tensor& in, DataType declared, Narrowing conversion, Tensor& out);

/// What the attributes `saturate` and `round_mode` ask for, 1 and "up" by default; fails for another mode.
template <typename Context>
Narrowing conversion_of(const Context& ctx) {
  using Direction = Narrowing::Direction;
  const std::string mode = ctx.attributes().text("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest")
    ctx.fail(fmt::format("expected up, down or nearest as round_mode, got '{}'", mode));
  return {ctx.attributes().integer("saturate", 1) != 0, mode == "up"     ? Direction::kUp
                                                        : mode == "down" ? Direction::kDown
                                                                         : Direction::kNearest};
}

/// The kernel of Cast and CastLike.
void run_cast(KernelContext& ctx);

}  // namespace ulpscope::ops
