// RMSNormalization, ai.onnx 23: divides by the root of the mean square over the axes from `axis` on, then scales.
#include "ops/adjoint_values.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  rms_normalize(ctx, ctx.input(0), ctx.input(1), ctx.attributes().real("epsilon", 1e-5F), ctx.output(0), nullptr);
}

void adjoint(AdjointContext& ctx) {
  const Value gx =
      normalization_adjoint(ctx, input(ctx, 0), ctx.attributes().integer("axis", -1),
                            static_cast<double>(ctx.attributes().real("epsilon", 1e-5F)), false, 1, -1, -1, -1);
  if (ctx.wants(0)) ctx.set(0, gx.id);
}

}  // namespace

OpDef rms_normalization() {
  return {.name = "RMSNormalization",
          .since_version = 23,
          .inputs = {2, 2},
          .kind = OpKind::kNormalization,
          .weights = 0b10,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
