// Add, ai.onnx 1, 6, 7, 13, 14: sum with NumPy broadcasting.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Plus {
  template <typename T>
  auto operator()(T a, T b) const { return a + b; }
};

}  // namespace

OpDef add() {
  return {.name = "Add", .since_version = 1, .inputs = {2, 2}, .kind = OpKind::kPointwise,
          .infer = infer_broadcast, .run = run_binary<NumericTypes, Plus>};
}

}  // namespace ulpscope::ops
