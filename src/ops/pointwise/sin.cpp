// Sin, ai.onnx 7, 22: the sine of an angle in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Sine {
  template <typename T>
  T operator()(T x) const {
    return std::sin(x);
  }
};

Value derivative(const Pointwise& p) { return cos(p.x()); }

}  // namespace

OpDef sin() { return unary_op("Sin", 7, run_unary<FloatTypes, Sine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
