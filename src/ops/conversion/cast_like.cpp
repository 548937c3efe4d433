// CastLike, ai.onnx 15, 19, 21, 23, 24, 25: Cast to the type of the second input.
#include "ops/adjoint_values.h"
#include "ops/conversion/cast_elements.h"

namespace ulpscope::ops {
namespace {

void infer_cast_like(InferContext& ctx) {
  ctx.set_type(0, ctx.type(1));
  conversion_of(ctx);
  ctx.set_shape(0, ctx.shape(0));
}

}  // namespace

OpDef cast_like() {
  return {.name = "CastLike",
          .since_version = 15,
          .inputs = {2, 2},
          .precision = PrecisionRule::kFixed,
          .function = Function::kCastLike,
          .storage_types = StorageTypes::kTaken,
          .casts = true,
          .infer = infer_cast_like,
          .run = run_cast,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
