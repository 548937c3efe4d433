// Floor, ai.onnx 1, 6, 13: the largest integer that is not more than x.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Down {
  template <typename T>
  T operator()(T x) const {
    return std::floor(x);
  }
};

}  // namespace

OpDef floor() { return unary_op("Floor", 1, run_unary<FloatTypes, Down>); }

}  // namespace ulpscope::ops
