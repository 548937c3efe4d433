// Acos, ai.onnx 7, 22: the arc cosine in radians.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ArcCosine {
  template <typename T>
  T operator()(T x) const {
    return std::acos(x);
  }
};

}  // namespace

OpDef acos() { return unary_op("Acos", 7, run_unary<FloatTypes, ArcCosine>); }

}  // namespace ulpscope::ops
