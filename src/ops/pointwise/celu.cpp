// Celu, ai.onnx 12, 28: x, alpha * (e^(x / alpha) - 1) below 0.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1);
  apply_unary<FloatTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    return x < 0 ? T(alpha) * std::expm1(x / T(alpha)) : x;
  });
}

Value derivative(const Pointwise& p) {
  return 1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0)) / p.real("alpha", 1)) - 1);
}

}  // namespace

OpDef celu() { return unary_op("Celu", 12, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
