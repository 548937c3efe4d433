// Round, ai.onnx 11, 22: the nearest integer, ties to even.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct ToNearest {
  template <typename T>
  T operator()(T x) const {
    return std::nearbyint(x);
  }
};

}  // namespace

OpDef round() { return unary_op("Round", 11, run_unary<FloatTypes, ToNearest>); }

}  // namespace ulpscope::ops
