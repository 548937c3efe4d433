// Sigmoid, ai.onnx 1, 6, 13: 1 / (1 + e^-x).
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Logistic {
  template <typename T>
  T operator()(T x) const {
    return T{1} / (T{1} + std::exp(-x));
  }
};

Value derivative(const Pointwise& p) { return p.y() * (1 - p.y()); }

}  // namespace

OpDef sigmoid() { return unary_op("Sigmoid", 1, run_unary<FloatTypes, Logistic>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
