// Cosh, ai.onnx 9, 22: the hyperbolic cosine.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct HyperbolicCosine {
  template <typename T>
  T operator()(T x) const {
    return std::cosh(x);
  }
};

Value derivative(const Pointwise& p) { return sinh(p.x()); }

}  // namespace

OpDef cosh() { return unary_op("Cosh", 9, run_unary<FloatTypes, HyperbolicCosine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
