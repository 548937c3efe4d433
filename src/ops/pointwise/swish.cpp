// Swish, ai.onnx 24: x * sigmoid(alpha * x).
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 1);
  apply_unary<FloatTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    return x / (T{1} + std::exp(-T(alpha) * x));
  });
}

Value derivative(const Pointwise& p) {
  const Value x = p.x(), gate = sigmoid(x * p.real("alpha", 1));
  return gate * (1 + x * (1 - gate) * p.real("alpha", 1));
}

}  // namespace

OpDef swish() { return unary_op("Swish", 24, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
