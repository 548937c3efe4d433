// Acosh, ai.onnx 9, 22: the inverse hyperbolic cosine.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct InverseCosine {
  template <typename T>
  T operator()(T x) const {
    return std::acosh(x);
  }
};

}  // namespace

OpDef acosh() { return unary_op("Acosh", 9, run_unary<FloatTypes, InverseCosine>); }

}  // namespace ulpscope::ops
