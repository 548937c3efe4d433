// Asinh, ai.onnx 9, 22: the inverse hyperbolic sine.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseSine {
  template <typename T>
  T operator()(T x) const {
    return std::asinh(x);
  }
};

Value derivative(const Pointwise& p) { return 1 / sqrt(square(p.x()) + 1); }

}  // namespace

OpDef asinh() { return unary_op("Asinh", 9, run_unary<FloatTypes, InverseSine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
