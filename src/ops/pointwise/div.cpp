// Div, ai.onnx 1, 6, 7, 13, 14: quotient with NumPy broadcasting; integers truncate, a division by zero gives 0.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct DividedBy {
  template <typename T>
  T operator()(T a, T b) const {
    return divided(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  const Value share = gradient(ctx) / input(ctx, 1);
  if (ctx.wants(0)) set(ctx, 0, share);
  if (ctx.wants(1)) set(ctx, 1, -sum_to(share * output(ctx), ctx.input_shape(1)));
}

}  // namespace

OpDef div() { return binary_op("Div", 1, run_binary<NumericTypes, DividedBy>, adjoint); }

}  // namespace ulpscope::ops
