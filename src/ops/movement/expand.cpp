// Expand, ai.onnx 8, 13: broadcasts to a shape (dimensions of 1 in it keep those of the input).
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_expand(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape target = ctx.integers(1);
  for (std::int64_t dim : target)
    if (dim < 0) ctx.fail(fmt::format("cannot expand to {}", to_string(target)));
  ctx.set_shape(0, broadcast_or_fail(ctx, ctx.shape(0), target));
}

void run_expand(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  copy_strided(in.type(), in.raw(), broadcast_strides(in.shape(), out.shape()), out.raw(), out.shape());
}

void adjoint_expand(AdjointContext& ctx) { set(ctx, 0, gradient(ctx)); }

}  // namespace

OpDef expand() {
  return {.name = "Expand",
          .since_version = 8,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .moves_values = true,
          .infer = infer_expand,
          .run = run_expand,
          .adjoint = adjoint_expand};
}

}  // namespace ulpscope::ops
