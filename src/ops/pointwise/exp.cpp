// Exp, ai.onnx 1, 6, 13: e^x.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Exponential {
  template <typename T>
  T operator()(T x) const {
    return std::exp(x);
  }
};

Value derivative(const Pointwise& p) { return p.y(); }

}  // namespace

OpDef exp() { return unary_op("Exp", 1, run_unary<FloatTypes, Exponential>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
