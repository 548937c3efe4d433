// Squeeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): drops dimensions of size 1.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  std::vector<bool> dropped(shape.size(), false);
  if (const auto axes = attribute_or_input(ctx, "axes", 1)) {
    for (std::int64_t axis : normalize_axes(ctx, *axes, ctx.rank(0))) {
      const std::size_t d = static_cast<std::size_t>(axis);
      if (shape[d] != 1) ctx.fail(fmt::format("cannot drop axis {} of {}: its size is not 1", axis, to_string(shape)));
      dropped[d] = true;
    }
  } else {
    for (std::size_t d = 0; d < shape.size(); ++d) dropped[d] = shape[d] == 1;
  }
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!dropped[d]) result.push_back(shape[d]);
  ctx.set_shape(0, std::move(result));
}

}  // namespace

OpDef squeeze() {
  return {.name = "Squeeze",
          .inputs = {1, 2},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .infer = infer,
          .run = run_copy,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
