// Erf, ai.onnx 9, 13: the error function.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ErrorFunction {
  template <typename T>
  T operator()(T x) const {
    return std::erf(x);
  }
};

}  // namespace

OpDef erf() { return unary_op("Erf", 9, run_unary<FloatTypes, ErrorFunction>); }

}  // namespace ulpscope::ops
