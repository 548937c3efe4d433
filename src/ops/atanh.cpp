// Atanh, ai.onnx 9, 22: the inverse hyperbolic tangent.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseTangent {
  template <typename T>
  T operator()(T x) const {
    return std::atanh(x);
  }
};

}  // namespace

OpDef atanh() { return unary_op("Atanh", 9, run_unary<FloatTypes, InverseTangent>); }

}  // namespace ulpscope::ops
