// Or, ai.onnx 1, 7: logical or with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Either {
  template <typename T>
  bool operator()(T a, T b) const {
    return a || b;
  }
};

}  // namespace

OpDef or_() { return comparison_op("Or", 1, run_comparison<TypeList<bool>, Either>); }

}  // namespace ulpscope::ops
