// Identity, ai.onnx 1, 13, 14, 16, 19, 21, 23, 24, 25: a copy (tensors only).
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {

OpDef identity() {
  return {.name = "Identity",
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer_same_as_first,
          .run = run_copy,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
