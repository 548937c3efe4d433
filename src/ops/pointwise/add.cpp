// Add, ai.onnx 1, 6, 7, 13, 14: sum with NumPy broadcasting; integers wrap around.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Plus {
  template <typename T>
  T operator()(T a, T b) const {
    return plus(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  for (int i : {0, 1})
    if (ctx.wants(i)) set(ctx, i, gradient(ctx));
}

}  // namespace

OpDef add() { return binary_op("Add", 1, run_binary<NumericTypes, Plus>, adjoint); }

}  // namespace ulpscope::ops
