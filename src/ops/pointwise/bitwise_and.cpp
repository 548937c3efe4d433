// BitwiseAnd, ai.onnx 18: the bits that both integers have, with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Both {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

}  // namespace

OpDef bitwise_and() {
  return {.name = "BitwiseAnd",
          .since_version = 18,
          .inputs = {2, 2},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_binary<IntegerTypes, Both>};
}

}  // namespace ulpscope::ops
