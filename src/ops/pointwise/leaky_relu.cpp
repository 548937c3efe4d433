// LeakyRelu, ai.onnx 1, 6, 16: x, scaled by alpha below 0.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 0.01F);
  apply_unary<FloatTypes>(ctx, [=](auto x) { return x < 0 ? decltype(x)(alpha) * x : x; });
}

Value derivative(const Pointwise& p) { return 1 + step(-p.x()) * (p.real("alpha", 0.01F) - 1); }

}  // namespace

OpDef leaky_relu() { return unary_op("LeakyRelu", 1, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
