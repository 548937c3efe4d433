// Reciprocal, ai.onnx 1, 6, 13: 1 / x.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Inverse {
  template <typename T>
  T operator()(T x) const {
    return T{1} / x;
  }
};

Value derivative(const Pointwise& p) { return -square(p.y()); }

}  // namespace

OpDef reciprocal() { return unary_op("Reciprocal", 1, run_unary<FloatTypes, Inverse>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
