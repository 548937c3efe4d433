// Unsqueeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): inserts dimensions of size 1.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const auto given = attribute_or_input(ctx, "axes", 1);
  if (!given) ctx.fail("axes are missing");
  const std::size_t rank = shape.size() + given->size();
  std::vector<bool> inserted(rank, false);
  for (std::int64_t axis : normalize_axes(ctx, *given, static_cast<std::int64_t>(rank)))
    inserted[static_cast<std::size_t>(axis)] = true;
  Shape result(rank, 1);
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d)
    if (!inserted[d]) result[d] = shape[next++];
  ctx.set_shape(0, std::move(result));
}

}  // namespace

OpDef unsqueeze() {
  return {.name = "Unsqueeze",
          .inputs = {1, 2},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .infer = infer,
          .run = run_copy,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
