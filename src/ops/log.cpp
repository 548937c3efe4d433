// Log, ai.onnx 1, 6, 13: the natural logarithm.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Logarithm {
  template <typename T>
  T operator()(T x) const {
    return std::log(x);
  }
};

}  // namespace

OpDef log() { return unary_op("Log", 1, run_unary<FloatTypes, Logarithm>); }

}  // namespace ulpscope::ops
