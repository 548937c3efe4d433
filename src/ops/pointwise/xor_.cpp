// Xor, ai.onnx 1, 7: logical exclusive or with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct OnlyOne {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};

}  // namespace

OpDef xor_() { return comparison_op("Xor", 1, run_comparison<TypeList<bool>, OnlyOne>); }

}  // namespace ulpscope::ops
