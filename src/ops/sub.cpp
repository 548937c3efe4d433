// Sub, ai.onnx 1, 6, 7, 13, 14: difference with NumPy broadcasting; integers wrap around.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Minus {
  template <typename T>
  T operator()(T a, T b) const {
    return minus(a, b);
  }
};

}  // namespace

OpDef sub() { return binary_op("Sub", 1, run_binary<NumericTypes, Minus>); }

}  // namespace ulpscope::ops
