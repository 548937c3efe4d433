// SwiGLU, ai.onnx 28: a * sigmoid(alpha * a) * b for a gate a and values b of one shape.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  infer_broadcast(ctx);
  if (ctx.shape(0) != ctx.shape(1))
    ctx.fail(
        fmt::format("expected inputs of one shape, got {} and {}", to_string(ctx.shape(0)), to_string(ctx.shape(1))));
}

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1);
  apply_binary<FloatTypes>(ctx, [=](auto gate, auto value) {
    using T = decltype(gate);
    return gate / (T{1} + std::exp(-T(alpha) * gate)) * value;
  });
}

void adjoint(AdjointContext& ctx) {
  const double alpha = static_cast<double>(ctx.attributes().real("alpha", 1));
  const Value g = gradient(ctx), x = input(ctx, 0), gate = sigmoid(x * alpha);
  if (ctx.wants(0)) ctx.set(0, (g * input(ctx, 1) * gate * (1 + x * (1 - gate) * alpha)).id);
  if (ctx.wants(1)) ctx.set(1, (g * x * gate).id);
}

}  // namespace

OpDef swiglu() {
  return {.name = "SwiGLU",
          .since_version = 28,
          .inputs = {2, 2},
          .kind = OpKind::kPointwise,
          .infer = infer,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
