// Asinh, ai.onnx 9, 22: the inverse hyperbolic sine.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseSine {
  template <typename T>
  T operator()(T x) const {
    return std::asinh(x);
  }
};

}  // namespace

OpDef asinh() { return unary_op("Asinh", 9, run_unary<FloatTypes, InverseSine>); }

}  // namespace ulpscope::ops
