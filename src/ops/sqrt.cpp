// Sqrt, ai.onnx 1, 6, 13: the square root.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct SquareRoot {
  template <typename T>
  T operator()(T x) const {
    return std::sqrt(x);
  }
};

}  // namespace

OpDef sqrt() { return unary_op("Sqrt", 1, run_unary<FloatTypes, SquareRoot>); }

}  // namespace ulpscope::ops
