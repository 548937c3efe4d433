// Max, ai.onnx 1, 6, 8, 12, 13: the largest of the inputs, element by element; NaN wins.
#include "ops/elementwise.h"
#include "ops/pointwise/extreme.h"

namespace ulpscope::ops {
namespace {

struct Larger {
  template <typename T>
  T operator()(T a, T b) const {
    return larger(a, b);
  }
};

}  // namespace

OpDef max() {
  return {.name = "Max",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_nary<NumericTypes, Larger>,
          .adjoint = extreme_adjoint};
}

}  // namespace ulpscope::ops
