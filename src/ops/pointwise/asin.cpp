// Asin, ai.onnx 7, 22: the arc sine in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcSine {
  template <typename T>
  T operator()(T x) const {
    return std::asin(x);
  }
};

Value derivative(const Pointwise& p) { return 1 / sqrt(1 - square(p.x())); }

}  // namespace

OpDef asin() { return unary_op("Asin", 7, run_unary<FloatTypes, ArcSine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
