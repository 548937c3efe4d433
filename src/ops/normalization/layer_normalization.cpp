// LayerNormalization, ai.onnx 17: standardises over the axes from `axis` on, then scales and shifts.
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  Tensor y = ctx.has_output(0) ? ctx.output(0) : Tensor(ctx.input(0).type(), ctx.input(0).shape());
  layer_normalize(ctx, ctx.input(0), ctx.input(1), ctx.has_input(2) ? &ctx.input(2) : nullptr,
                  ctx.attributes().real("epsilon", 1e-5F), y, ctx.has_output(1) ? &ctx.output(1) : nullptr,
                  ctx.has_output(2) ? &ctx.output(2) : nullptr);
}

void adjoint(AdjointContext& ctx) {
  const Value gx =
      normalization_adjoint(ctx, input(ctx, 0), ctx.attributes().integer("axis", -1),
                            static_cast<double>(ctx.attributes().real("epsilon", 1e-5F)), true, 1, 2, 1, 2);
  if (ctx.wants(0)) ctx.set(0, gx.id);
}

}  // namespace

OpDef layer_normalization() {
  return {.name = "LayerNormalization",
          .since_version = 17,
          .inputs = {2, 3},
          .outputs = {1, 3},
          .kind = OpKind::kNormalization,
          .weights = 0b110,
          .infer = infer_layer_normalization,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
