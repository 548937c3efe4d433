// Sub, ai.onnx 1, 6, 7, 13, 14: difference with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Minus {
  template <typename T>
  auto operator()(T a, T b) const { return a - b; }
};

}  // namespace

OpDef sub() {
  return {.name = "Sub", .since_version = 1, .inputs = {2, 2}, .kind = OpKind::kPointwise,
          .infer = infer_broadcast, .run = run_binary<NumericTypes, Minus>};
}

}  // namespace ulpscope::ops
