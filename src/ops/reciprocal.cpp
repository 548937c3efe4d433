// Reciprocal, ai.onnx 1, 6, 13: 1 / x.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Inverse {
  template <typename T>
  T operator()(T x) const {
    return T{1} / x;
  }
};

}  // namespace

OpDef reciprocal() { return unary_op("Reciprocal", 1, run_unary<FloatTypes, Inverse>); }

}  // namespace ulpscope::ops
