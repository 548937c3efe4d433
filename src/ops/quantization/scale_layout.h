// The layout of scales that the attributes of QuantizeLinear and DequantizeLinear mean: per tensor, per axis, or per
// block of an axis (ai.onnx 21).
#pragma once

#include "formats/encoding.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {

/// Works with both contexts; fails when the scale has a shape that does not fit.
template <typename Context>
ScaleLayout scale_layout(const Context& ctx, const Shape& x, const Shape& scale) {
  if (num_elements(scale) == 1 && scale.size() <= 1) return {};
  Encoding encoding{.granularity = Granularity::kChannel};
  encoding.axis = static_cast<int>(normalize_axis(ctx, ctx.attributes().integer("axis", 1),
                                                  static_cast<std::int64_t>(x.size()) + (x.empty() ? 1 : 0)));
  if (const std::int64_t block = ctx.attributes().integer("block_size", 0); block > 0) {
    encoding.granularity = Granularity::kBlock;
    encoding.block = block;
  }
  ScaleLayout layout(encoding, x.empty() ? Shape{1} : x);
  if (scale != layout.scales)
    ctx.fail(fmt::format("a scale of shape {} does not fit an input of shape {} (axis {}, block_size {})",
                         to_string(scale), to_string(x), encoding.axis, layout.blocked ? layout.block : 0));
  return layout;
}

}  // namespace ulpscope::ops
