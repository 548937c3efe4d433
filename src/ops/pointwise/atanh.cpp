// Atanh, ai.onnx 9, 22: the inverse hyperbolic tangent.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseTangent {
  template <typename T>
  T operator()(T x) const {
    return std::atanh(x);
  }
};

Value derivative(const Pointwise& p) { return 1 / (1 - square(p.x())); }

}  // namespace

OpDef atanh() { return unary_op("Atanh", 9, run_unary<FloatTypes, InverseTangent>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
