// Sign, ai.onnx 9, 13: -1, 0 or 1; NaN stays NaN.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct SignOf {
  template <typename T>
  T operator()(T x) const {
    if (x != x) return x;
    return static_cast<T>((x > T{0}) - (x < T{0}));
  }
};

}  // namespace

OpDef sign() { return unary_op("Sign", 9, run_unary<NumericTypes, SignOf>); }

}  // namespace ulpscope::ops
