// Sinh, ai.onnx 9, 22: the hyperbolic sine.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct HyperbolicSine {
  template <typename T>
  T operator()(T x) const {
    return std::sinh(x);
  }
};

Value derivative(const Pointwise& p) { return cosh(p.x()); }

}  // namespace

OpDef sinh() { return unary_op("Sinh", 9, run_unary<FloatTypes, HyperbolicSine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
