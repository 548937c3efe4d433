// BitwiseNot, ai.onnx 18: all bits of an integer flipped.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Flipped {
  template <typename T>
  T operator()(T x) const {
    return static_cast<T>(~x);
  }
};

}  // namespace

OpDef bitwise_not() {
  return {.name = "BitwiseNot",
          .since_version = 18,
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_same_as_first,
          .run = run_unary<IntegerTypes, Flipped>};
}

}  // namespace ulpscope::ops
