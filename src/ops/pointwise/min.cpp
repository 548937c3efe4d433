// Min, ai.onnx 1, 6, 8, 12, 13: the smallest of the inputs, element by element; NaN wins.
#include "ops/elementwise.h"
#include "ops/pointwise/extreme.h"

namespace ulpscope::ops {
namespace {

struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    return smaller(a, b);
  }
};

}  // namespace

OpDef min() {
  return {.name = "Min",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_nary<NumericTypes, Smaller>,
          .adjoint = extreme_adjoint};
}

}  // namespace ulpscope::ops
