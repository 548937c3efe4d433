// Sqrt, ai.onnx 1, 6, 13: the square root.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct SquareRoot {
  template <typename T>
  T operator()(T x) const {
    return std::sqrt(x);
  }
};

Value derivative(const Pointwise& p) { return 0.5 / p.y(); }

}  // namespace

OpDef sqrt() { return unary_op("Sqrt", 1, run_unary<FloatTypes, SquareRoot>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
