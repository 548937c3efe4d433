// BitwiseOr, ai.onnx 18: the bits that one of the integers has, with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Either {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

}  // namespace

OpDef bitwise_or() {
  return {.name = "BitwiseOr",
          .since_version = 18,
          .inputs = {2, 2},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_binary<IntegerTypes, Either>};
}

}  // namespace ulpscope::ops
