// Sinh, ai.onnx 9, 22: the hyperbolic sine.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct HyperbolicSine {
  template <typename T>
  T operator()(T x) const {
    return std::sinh(x);
  }
};

}  // namespace

OpDef sinh() { return unary_op("Sinh", 9, run_unary<FloatTypes, HyperbolicSine>); }

}  // namespace ulpscope::ops
