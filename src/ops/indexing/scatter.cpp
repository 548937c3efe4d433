// Scatter, ai.onnx 9, 11: the former name of ScatterElements.
#include "ops/indexing/scatter_by_element.h"

namespace ulpscope::ops {

OpDef scatter() {
  return {.name = "Scatter",
          .since_version = 9,
          .inputs = {3, 3},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer_scatter_elements,
          .run = run_scatter_elements,
          .adjoint = adjoint_scatter_elements};
}

}  // namespace ulpscope::ops
