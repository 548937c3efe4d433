// SkipLayerNormalization, com.microsoft 1: LayerNormalization of x + skip + bias over the last axis; output 3 is the
// sum.
#include "ops/adjoint_values.h"
#include "ops/normalization/skip_normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const Tensor sum = sum_with_skip(ctx, 4);
  layer_normalize(ctx, sum, ctx.input(2), ctx.has_input(3) ? &ctx.input(3) : nullptr,
                  ctx.attributes().real("epsilon", 1e-12F), ctx.output(0), ctx.has_output(1) ? &ctx.output(1) : nullptr,
                  ctx.has_output(2) ? &ctx.output(2) : nullptr);
}

void adjoint(AdjointContext& ctx) {
  Value x = input(ctx, 0) + input(ctx, 1);
  if (ctx.has_input(4)) x = x + input(ctx, 4);
  Value gx = normalization_adjoint(ctx, x, ctx.attributes().integer("axis", -1),
                                   static_cast<double>(ctx.attributes().real("epsilon", 1e-12F)), true, 2, 3, 1, 2);
  if (ctx.gradient(3) != kNone) gx = gx + gradient(ctx, 3);
  for (int i : {0, 1, 4})
    if (ctx.wants(i)) set(ctx, i, gx);
}

}  // namespace

OpDef skip_layer_normalization() {
  return {.name = "SkipLayerNormalization",
          .domain = "com.microsoft",
          .inputs = {3, 5},
          .outputs = {1, 4},
          .kind = OpKind::kNormalization,
          .weights = 0b11100,
          .infer = infer_skip_normalization,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
