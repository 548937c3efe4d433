// Tanh, ai.onnx 1, 6, 13: the hyperbolic tangent.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct HyperbolicTangent {
  template <typename T>
  T operator()(T x) const {
    return std::tanh(x);
  }
};

Value derivative(const Pointwise& p) { return 1 - square(p.y()); }

}  // namespace

OpDef tanh() { return unary_op("Tanh", 1, run_unary<FloatTypes, HyperbolicTangent>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
