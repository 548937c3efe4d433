// GroupNormalization, ai.onnx 18 (parameters per group), 21 (per channel): standardises groups of channels of a sample.
#include "ops/adjoint_values.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { group_normalize(ctx, ctx.attributes().required_integer("num_groups")); }

void adjoint(AdjointContext& ctx) { group_normalization_adjoint(ctx, ctx.attributes().required_integer("num_groups")); }

}  // namespace

OpDef group_normalization() {
  return {.name = "GroupNormalization",
          .since_version = 18,
          .inputs = {3, 3},
          .kind = OpKind::kNormalization,
          .weights = 0b110,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
