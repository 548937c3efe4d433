// BiasGelu, com.microsoft 1: Gelu of x plus a bias along the last axis.
#include "ops/adjoint_values.h"
#include "ops/pointwise/gelu.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  apply_binary<FloatTypes>(ctx, [](auto x, auto bias) { return gelu_of(x + bias); });
}

void adjoint(AdjointContext& ctx) {
  Value x = input(ctx, 0);
  if (ctx.has_input(1)) x = x + input(ctx, 1);
  const Value g = gradient(ctx) * gelu_derivative(x);
  for (int i : {0, 1})
    if (ctx.wants(i)) set(ctx, i, g);
}

}  // namespace

OpDef bias_gelu() {
  return {.name = "BiasGelu",
          .domain = "com.microsoft",
          .inputs = {2, 2},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
