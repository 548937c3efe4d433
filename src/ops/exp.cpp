// Exp, ai.onnx 1, 6, 13: e^x.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Exponential {
  template <typename T>
  T operator()(T x) const {
    return std::exp(x);
  }
};

}  // namespace

OpDef exp() { return unary_op("Exp", 1, run_unary<FloatTypes, Exponential>); }

}  // namespace ulpscope::ops
