// ThresholdedRelu, ai.onnx 10, 22: x above alpha, else 0.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1);
  apply_unary<FloatTypes>(ctx, [=](auto x) { return x > decltype(x)(alpha) ? x : decltype(x){0}; });
}

Value derivative(const Pointwise& p) { return step(p.x() - p.real("alpha", 1)); }

}  // namespace

OpDef thresholded_relu() { return unary_op("ThresholdedRelu", 10, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
