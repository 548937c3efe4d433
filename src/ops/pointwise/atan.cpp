// Atan, ai.onnx 7, 22: the arc tangent in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcTangent {
  template <typename T>
  T operator()(T x) const {
    return std::atan(x);
  }
};

Value derivative(const Pointwise& p) { return 1 / (square(p.x()) + 1); }

}  // namespace

OpDef atan() { return unary_op("Atan", 7, run_unary<FloatTypes, ArcTangent>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
