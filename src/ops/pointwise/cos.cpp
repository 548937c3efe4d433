// Cos, ai.onnx 7, 22: the cosine of an angle in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Cosine {
  template <typename T>
  T operator()(T x) const {
    return std::cos(x);
  }
};

Value derivative(const Pointwise& p) { return -sin(p.x()); }

}  // namespace

OpDef cos() { return unary_op("Cos", 7, run_unary<FloatTypes, Cosine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
