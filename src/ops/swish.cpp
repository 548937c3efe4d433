// Swish, ai.onnx 24: x * sigmoid(alpha * x).
#include <cmath>

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

}  // namespace

OpDef swish() { return unary_op("Swish", 24, run); }

}  // namespace ulpscope::ops
