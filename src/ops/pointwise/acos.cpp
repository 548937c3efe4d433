// Acos, ai.onnx 7, 22: the arc cosine in radians.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcCosine {
  template <typename T>
  T operator()(T x) const {
    return std::acos(x);
  }
};

Value derivative(const Pointwise& p) { return -1.0 / sqrt(1 - square(p.x())); }

}  // namespace

OpDef acos() { return unary_op("Acos", 7, run_unary<FloatTypes, ArcCosine>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
