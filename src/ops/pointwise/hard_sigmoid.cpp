// HardSigmoid, ai.onnx 1, 6, 22: max(0, min(1, alpha * x + beta)).
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 0.2F), beta = ctx.attributes().real("beta", 0.5F);
  apply_unary<FloatTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    return std::clamp(T(alpha) * x + T(beta), T{0}, T{1});
  });
}

Value derivative(const Pointwise& p) { return sign(p.y() * (1 - p.y())) * p.real("alpha", 0.2F); }

}  // namespace

OpDef hard_sigmoid() { return unary_op("HardSigmoid", 1, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
