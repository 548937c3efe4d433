// QuickGelu, com.microsoft 1: x * sigmoid(alpha * x).
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1.702F);
  apply_unary<FloatTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    return x / (T{1} + std::exp(-T(alpha) * x));
  });
}

Value derivative(const Pointwise& p) {
  const Value x = p.x(), gate = sigmoid(x * p.real("alpha", 1.702F));
  return gate * (1 + x * (1 - gate) * p.real("alpha", 1.702F));
}

}  // namespace

OpDef quick_gelu() {
  return {.name = "QuickGelu",
          .domain = "com.microsoft",
          .kind = OpKind::kPointwise,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = pointwise_adjoint<derivative>};
}

}  // namespace ulpscope::ops
