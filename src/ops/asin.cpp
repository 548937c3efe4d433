// Asin, ai.onnx 7, 22: the arc sine in radians.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcSine {
  template <typename T>
  T operator()(T x) const {
    return std::asin(x);
  }
};

}  // namespace

OpDef asin() { return unary_op("Asin", 7, run_unary<FloatTypes, ArcSine>); }

}  // namespace ulpscope::ops
