// Mul, ai.onnx 1, 6, 7, 13, 14: product with NumPy broadcasting; integers wrap around.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Times {
  template <typename T>
  T operator()(T a, T b) const {
    return times(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  for (int i : {0, 1})
    if (ctx.wants(i)) set(ctx, i, gradient(ctx) * input(ctx, 1 - i));
}

}  // namespace

OpDef mul() { return binary_op("Mul", 1, run_binary<NumericTypes, Times>, adjoint); }

}  // namespace ulpscope::ops
