// How conversions to the floats of 8 bits and less narrow.
#pragma once

#include "formats/numeric_format.h"
#include "ops/common.h"

namespace ulpscope::ops {

/// What the attributes `saturate` and `round_mode` ask for, 1 and "up" by default; fails for another mode.
template <typename Context>
Narrowing conversion_of(const Context& ctx) {
  using Direction = Narrowing::Direction;
  const std::string mode = ctx.attributes().text("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest")
    ctx.fail("expected up, down or nearest as round_mode, got '{}'", mode);
  return {ctx.attributes().integer("saturate", 1) != 0, mode == "up"     ? Direction::kUp
                                                        : mode == "down" ? Direction::kDown
                                                                         : Direction::kNearest};
}

}  // namespace ulpscope::ops
