// FastGelu, com.microsoft 1: Gelu with the tanh approximation of x plus an optional bias.
#include "ops/adjoint_values.h"
#include "ops/pointwise/gelu.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) { ctx.has_input(1) ? infer_broadcast(ctx) : infer_same_as_first(ctx); }

void run(KernelContext& ctx) {
  if (!ctx.has_input(1)) return apply_unary<FloatTypes>(ctx, [](auto x) { return gelu_tanh_of(x); });
  apply_binary<FloatTypes>(ctx, [](auto x, auto bias) { return gelu_tanh_of(x + bias); });
}

void adjoint(AdjointContext& ctx) {
  Value x = input(ctx, 0);
  if (ctx.has_input(1)) x = x + input(ctx, 1);
  const Value g = gradient(ctx) * gelu_tanh_derivative(x);
  for (int i : {0, 1})
    if (ctx.wants(i)) set(ctx, i, g);
}

}  // namespace

OpDef fast_gelu() {
  return {.name = "FastGelu",
          .domain = "com.microsoft",
          .inputs = {1, 2},
          .kind = OpKind::kPointwise,
          .infer = infer,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
