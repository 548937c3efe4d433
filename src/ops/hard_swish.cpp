// HardSwish, ai.onnx 14, 22: x * max(0, min(1, x / 6 + 0.5)).
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Gated {
  template <typename T>
  T operator()(T x) const {
    return x * std::clamp(x * T(1.0 / 6) + T(0.5), T{0}, T{1});
  }
};

}  // namespace

OpDef hard_swish() { return unary_op("HardSwish", 14, run_unary<FloatTypes, Gated>); }

}  // namespace ulpscope::ops
