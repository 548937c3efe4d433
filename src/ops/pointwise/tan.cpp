// Tan, ai.onnx 7, 22: the tangent of an angle in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Tangent {
  template <typename T>
  T operator()(T x) const {
    return std::tan(x);
  }
};

Value derivative(const Pointwise& p) { return 1 + square(p.y()); }

}  // namespace

OpDef tan() { return unary_op("Tan", 7, run_unary<FloatTypes, Tangent>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
