// Ceil, ai.onnx 1, 6, 13: the smallest integer that is not less than x.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Up {
  template <typename T>
  T operator()(T x) const {
    return std::ceil(x);
  }
};

}  // namespace

OpDef ceil() { return unary_op("Ceil", 1, run_unary<FloatTypes, Up>); }

}  // namespace ulpscope::ops
