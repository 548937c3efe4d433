// Softplus, ai.onnx 1, 22: ln(1 + e^x), in a form that does not overflow.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct SmoothRelu {
  template <typename T>
  T operator()(T x) const {
    return (x > T{0} ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
  }
};

Value derivative(const Pointwise& p) { return sigmoid(p.x()); }

}  // namespace

OpDef softplus() { return unary_op("Softplus", 1, run_unary<FloatTypes, SmoothRelu>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
