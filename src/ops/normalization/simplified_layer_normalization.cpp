// SimplifiedLayerNormalization, as ONNX Runtime's fusions write it into ai.onnx: RMSNormalization with the inverse
// deviation as output 1.
#include "ops/adjoint_values.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  rms_normalize(ctx, ctx.input(0), ctx.input(1), ctx.attributes().real("epsilon", 1e-5F), ctx.output(0),
                ctx.has_output(1) ? &ctx.output(1) : nullptr);
}

void adjoint(AdjointContext& ctx) {
  const Value gx =
      normalization_adjoint(ctx, input(ctx, 0), ctx.attributes().integer("axis", -1),
                            static_cast<double>(ctx.attributes().real("epsilon", 1e-5F)), false, 1, -1, -1, 1);
  if (ctx.wants(0)) ctx.set(0, gx.id);
}

}  // namespace

OpDef simplified_layer_normalization() {
  return {.name = "SimplifiedLayerNormalization",
          .inputs = {2, 2},
          .outputs = {1, 2},
          .kind = OpKind::kNormalization,
          .weights = 0b10,
          .infer = infer_layer_normalization,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
