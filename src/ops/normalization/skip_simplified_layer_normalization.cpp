// SkipSimplifiedLayerNormalization, com.microsoft 1: RMSNormalization of x + skip + bias over the last axis; output 3
// is the sum.
#include "ops/adjoint_values.h"
#include "ops/normalization/skip_normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const Tensor sum = sum_with_skip(ctx, 3);
  rms_normalize(ctx, sum, ctx.input(2), ctx.attributes().real("epsilon", 1e-12F), ctx.output(0),
                ctx.has_output(2) ? &ctx.output(2) : nullptr);
  if (ctx.has_output(1)) std::fill_n(ctx.output(1).data<float>(), ctx.output(1).size(), 0.0F);  // there is no mean
}

void adjoint(AdjointContext& ctx) {
  Value x = input(ctx, 0) + input(ctx, 1);
  if (ctx.has_input(3)) x = x + input(ctx, 3);
  Value gx = normalization_adjoint(ctx, x, ctx.attributes().integer("axis", -1),
                                   static_cast<double>(ctx.attributes().real("epsilon", 1e-12F)), false, 2, -1, -1, 2);
  if (ctx.gradient(3) != kNone) gx = gx + gradient(ctx, 3);
  for (int i : {0, 1, 3})
    if (ctx.wants(i)) set(ctx, i, gx);
}

}  // namespace

OpDef skip_simplified_layer_normalization() {
  return {.name = "SkipSimplifiedLayerNormalization",
          .domain = "com.microsoft",
          .inputs = {3, 4},
          .outputs = {1, 4},
          .kind = OpKind::kNormalization,
          .weights = 0b1100,
          .infer = infer_skip_normalization,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
