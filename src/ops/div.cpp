// Div, ai.onnx 1, 6, 7, 13, 14: quotient with NumPy broadcasting; integers truncate, a division by zero gives 0.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct DividedBy {
  template <typename T>
  T operator()(T a, T b) const {
    return divided(a, b);
  }
};

}  // namespace

OpDef div() { return binary_op("Div", 1, run_binary<NumericTypes, DividedBy>); }

}  // namespace ulpscope::ops
