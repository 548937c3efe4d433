// Which scale belongs to which element: per tensor, per axis, or per block of an axis (ai.onnx 21).
#pragma once

#include "ops/quantization.h"

namespace ulpscope::ops {

/// Element i has the scale (i / inner / block-of-axis ...): see `index`.
struct ScaleLayout {
  std::int64_t outer = 1, axis = 1, inner = 1;  ///< The tensor as (outer, axis, inner).
  std::int64_t block = 1;                       ///< Elements along the axis that share a scale.
  std::int64_t groups = 1;                      ///< Scales along the axis; 1 for one scale per tensor.
  bool per_tensor = true, blocked = false;

  std::int64_t index(std::int64_t element) const noexcept {
    if (per_tensor) return 0;
    const std::int64_t position = element / inner % axis;
    if (!blocked) return position;
    return (element / (inner * axis) * groups + position / block) * inner + element % inner;
  }
};

/// Works with both contexts; fails when the scale has a shape that does not fit.
template <typename Context>
ScaleLayout scale_layout(const Context& ctx, const Shape& x, const Shape& scale) {
  ScaleLayout layout;
  if (num_elements(scale) == 1 && scale.size() <= 1) return layout;
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 1),
                                           static_cast<std::int64_t>(x.size()) + (x.empty() ? 1 : 0));
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t block = ctx.attributes().integer("block_size", 0);
  layout.per_tensor = false;
  layout.outer = product(x, 0, at);
  layout.axis = x[at];
  layout.inner = product(x, at + 1, x.size());
  layout.blocked = block > 0;
  bool fits = scale == Shape{x[at]};
  if (layout.blocked) {
    Shape wanted = x;
    layout.block = block;
    layout.groups = wanted[at] = (x[at] + block - 1) / block;
    fits = scale == wanted;
  }
  if (!fits)
    ctx.fail(fmt::format("a scale of shape {} does not fit an input of shape {} (axis {}, block_size {})",
                         to_string(scale), to_string(x), axis, block));
  return layout;
}

}  // namespace ulpscope::ops
