// Mean, ai.onnx 1, 6, 8, 13: the mean of the inputs, element by element, with NumPy broadcasting.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    fold_inputs<T>(ctx, [](T a, T b) { return a + b; });
    const T count = static_cast<T>(ctx.num_inputs());
    map_unary<T, T>(ctx.output(0), ctx.output(0), [count](T sum) { return sum / count; });
  });
}

void adjoint(AdjointContext& ctx) {
  const Value share = gradient(ctx) * (1 / static_cast<double>(ctx.num_inputs()));
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, share);
}

}  // namespace

OpDef mean() {
  return {.name = "Mean",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
