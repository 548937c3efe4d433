// LessOrEqual, ai.onnx 12, 16: a <= b with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Compare {
  template <typename T>
  bool operator()(T a, T b) const {
    return a <= b;
  }
};

}  // namespace

OpDef less_or_equal() { return comparison_op("LessOrEqual", 12, run_comparison<NumericTypes, Compare>); }

}  // namespace ulpscope::ops
