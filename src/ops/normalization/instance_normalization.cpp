// InstanceNormalization, ai.onnx 1, 6, 22: standardises every channel of every sample, then scales and shifts.
#include "ops/adjoint_values.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { group_normalize(ctx, ctx.input(0).rank() < 2 ? 1 : ctx.input(0).shape()[1]); }

void adjoint(AdjointContext& ctx) {
  group_normalization_adjoint(ctx, ctx.input_shape(0).size() < 2 ? 1 : ctx.input_shape(0)[1]);
}

}  // namespace

OpDef instance_normalization() {
  return {.name = "InstanceNormalization",
          .inputs = {3, 3},
          .kind = OpKind::kNormalization,
          .weights = 0b110,
          .infer = infer_instance_normalization,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
