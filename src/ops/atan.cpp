// Atan, ai.onnx 7, 22: the arc tangent in radians.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcTangent {
  template <typename T>
  T operator()(T x) const {
    return std::atan(x);
  }
};

}  // namespace

OpDef atan() { return unary_op("Atan", 7, run_unary<FloatTypes, ArcTangent>); }

}  // namespace ulpscope::ops
