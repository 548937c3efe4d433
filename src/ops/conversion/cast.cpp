// Cast, ai.onnx 1, 6, 9, 13, 19, 21, 23, 24, 25, 28: converts elements as C++ and NumPy do; narrow floats round to
// nearest even, once; float8 saturates unless `saturate` is 0. The type is the file's choice, so no precision applies.
#include "ops/adjoint_values.h"
#include "ops/conversion/cast_elements.h"
#include "ops/onnx_types.h"

namespace ulpscope::ops {
namespace {

void infer_cast(InferContext& ctx) {
  ctx.set_type(0, data_type_from_onnx(ctx.layer(), ctx.attributes().required_integer("to")));
  conversion_of(ctx);
  ctx.set_shape(0, ctx.shape(0));
}

}  // namespace

OpDef cast() {
  return {.name = "Cast",
          .precision = PrecisionRule::kFixed,
          .function = Function::kCast,
          .storage_types = StorageTypes::kTaken,
          .casts = true,
          .infer = infer_cast,
          .run = run_cast,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
