// BitwiseXor, ai.onnx 18: the bits in which two integers differ, with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct OnlyOne {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

}  // namespace

OpDef bitwise_xor() {
  return {.name = "BitwiseXor",
          .since_version = 18,
          .inputs = {2, 2},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_binary<IntegerTypes, OnlyOne>};
}

}  // namespace ulpscope::ops
