// Sub, ai.onnx 1, 6, 7, 13, 14: difference with NumPy broadcasting; integers wrap around.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Minus {
  template <typename T>
  T operator()(T a, T b) const {
    return minus(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  if (ctx.wants(0)) set(ctx, 0, gradient(ctx));
  if (ctx.wants(1)) set(ctx, 1, -sum_to(gradient(ctx), ctx.input_shape(1)));
}

}  // namespace

OpDef sub() { return binary_op("Sub", 1, run_binary<NumericTypes, Minus>, adjoint); }

}  // namespace ulpscope::ops
