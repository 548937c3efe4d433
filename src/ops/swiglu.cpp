// SwiGLU, ai.onnx 28: a * sigmoid(alpha * a) * b for a gate a and values b of one shape.
#include <cmath>

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

}  // namespace

OpDef swiglu() {
  return {
      .name = "SwiGLU", .since_version = 28, .inputs = {2, 2}, .kind = OpKind::kPointwise, .infer = infer, .run = run};
}

}  // namespace ulpscope::ops
