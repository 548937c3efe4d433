// LogSoftmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): x - log(sum(e^x)), without overflow.
#include "ops/adjoint_values.h"
#include "ops/normalization/softmax.h"

namespace ulpscope::ops {

namespace {

void adjoint(AdjointContext& ctx) {
  const Value y = output(ctx), g = gradient(ctx);
  const std::vector<std::int64_t> axes = softmax_axes(ctx, static_cast<std::int64_t>(y.shape().size()));
  ctx.set(0, (g - exp(y) * sum(g, axes)).id);
}

}  // namespace

OpDef log_softmax() {
  return {.name = "LogSoftmax",
          .kind = OpKind::kSoftmax,
          .infer = infer_softmax,
          .run = run_softmax<FloatTypes, LogShares>,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
