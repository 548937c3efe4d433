// Flatten, ai.onnx 1, 9, 11, 13, 21, 23, 24, 25: to a matrix, split at an axis.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const std::int64_t rank = ctx.rank(0);
  std::int64_t axis = ctx.attributes().integer("axis", 1);
  if (axis < -rank || axis > rank) ctx.fail(fmt::format("axis {} is outside of [{}, {}]", axis, -rank, rank));
  if (axis < 0) axis += rank;
  ctx.set_shape(0, {product(shape, 0, static_cast<std::size_t>(axis)),
                    product(shape, static_cast<std::size_t>(axis), shape.size())});
}

}  // namespace

OpDef flatten() {
  return {.name = "Flatten",
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer,
          .run = run_copy,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
