// Selu, ai.onnx 1, 6, 22: gamma * x, gamma * alpha * (e^x - 1) up to 0.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1.67326319217681884765625F);
  const float gamma = ctx.attributes().real("gamma", 1.05070102214813232421875F);
  apply_unary<FloatTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    return x > 0 ? T(gamma) * x : T(gamma) * (T(alpha) * std::expm1(x));
  });
}

Value derivative(const Pointwise& p) {
  const double alpha = p.real("alpha", 1.67326319217681884765625F), gamma = p.real("gamma", 1.05070102214813232421875F);
  return (1 + step(-p.x()) * (exp(minimum(p.x(), scalar(p.ctx, 0))) * alpha - 1)) * gamma;
}

}  // namespace

OpDef selu() { return unary_op("Selu", 1, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
