// Equal, ai.onnx 1, 7, 11, 13, 19: a == b with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Compare {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};

}  // namespace

OpDef equal() { return comparison_op("Equal", 1, run_comparison<AllTypes, Compare>); }

}  // namespace ulpscope::ops
