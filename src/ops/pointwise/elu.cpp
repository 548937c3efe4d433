// Elu, ai.onnx 1, 6, 22: x, alpha * (e^x - 1) below 0.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1);
  apply_unary<FloatTypes>(ctx, [=](auto x) { return x < 0 ? decltype(x)(alpha) * std::expm1(x) : x; });
}

Value derivative(const Pointwise& p) {
  return 1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0))) * p.real("alpha", 1) - 1);
}

}  // namespace

OpDef elu() { return unary_op("Elu", 1, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
