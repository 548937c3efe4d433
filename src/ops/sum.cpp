// Sum, ai.onnx 1, 6, 8, 13: the sum of the inputs with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Plus {
  template <typename T>
  T operator()(T a, T b) const {
    return plus(a, b);
  }
};

}  // namespace

OpDef sum() {
  return {.name = "Sum",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_nary<FloatTypes, Plus>};
}

}  // namespace ulpscope::ops
