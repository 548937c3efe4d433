// Constant, ai.onnx 1, 9, 11, 12, 13: a value known when the network is read. The importer turns every form of the
// attribute (value, value_float, value_ints, ...) and every initializer that is read as a tensor into
// TensorInfo::value.
#include "ops/common.h"

namespace ulpscope::ops {
namespace {

void infer_constant(InferContext&) {}  // The driver takes type, shape and elements from TensorInfo::value.

}  // namespace

OpDef constant() {
  return {.name = "Constant",
          .inputs = {0, 0},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kConstant,
          .infer = infer_constant};
}

}  // namespace ulpscope::ops
