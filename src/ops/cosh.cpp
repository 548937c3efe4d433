// Cosh, ai.onnx 9, 22: the hyperbolic cosine.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct HyperbolicCosine {
  template <typename T>
  T operator()(T x) const {
    return std::cosh(x);
  }
};

}  // namespace

OpDef cosh() { return unary_op("Cosh", 9, run_unary<FloatTypes, HyperbolicCosine>); }

}  // namespace ulpscope::ops
