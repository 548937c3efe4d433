// Mish, ai.onnx 18, 22: x * tanh(softplus(x)).
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Gated {
  template <typename T>
  T operator()(T x) const {
    const T softplus = (x > T{0} ? x : T{0}) + std::log1p(std::exp(-std::abs(x)));
    return x * std::tanh(softplus);
  }
};

Value derivative(const Pointwise& p) {
  const Value x = p.x(), t = tanh(x.with("Softplus"));
  return t + x * (1 - square(t)) * sigmoid(x);
}

}  // namespace

OpDef mish() { return unary_op("Mish", 18, run_unary<FloatTypes, Gated>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
