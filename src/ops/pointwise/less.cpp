// Less, ai.onnx 1, 7, 9, 13: a < b with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Compare {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};

}  // namespace

OpDef less() { return comparison_op("Less", 1, run_comparison<NumericTypes, Compare>); }

}  // namespace ulpscope::ops
