// Erf, ai.onnx 9, 13: the error function.
#include <cmath>
#include <numbers>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ErrorFunction {
  template <typename T>
  T operator()(T x) const {
    return std::erf(x);
  }
};

Value derivative(const Pointwise& p) { return exp(-square(p.x())) * (2 / std::sqrt(std::numbers::pi)); }

}  // namespace

OpDef erf() { return unary_op("Erf", 9, run_unary<FloatTypes, ErrorFunction>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
