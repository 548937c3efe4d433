// Acosh, ai.onnx 9, 22: the inverse hyperbolic cosine.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseCosine {
  template <typename T>
  T operator()(T x) const {
    return std::acosh(x);
  }
};

Value derivative(const Pointwise& p) { return 1 / sqrt(square(p.x()) - 1); }

}  // namespace

OpDef acosh() { return unary_op("Acosh", 9, run_unary<FloatTypes, InverseCosine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
