// And, ai.onnx 1, 7: logical and with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Both {
  template <typename T>
  bool operator()(T a, T b) const {
    return a && b;
  }
};

}  // namespace

OpDef and_() { return comparison_op("And", 1, run_comparison<TypeList<bool>, Both>); }

}  // namespace ulpscope::ops
