// Mul, ai.onnx 1, 6, 7, 13, 14: product with NumPy broadcasting; integers wrap around.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Times {
  template <typename T>
  T operator()(T a, T b) const {
    return times(a, b);
  }
};

}  // namespace

OpDef mul() { return binary_op("Mul", 1, run_binary<NumericTypes, Times>); }

}  // namespace ulpscope::ops
