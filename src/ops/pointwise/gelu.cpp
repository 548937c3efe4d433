// Gelu, ai.onnx 20: x * Phi(x), exact or with the tanh approximation.
#include "ops/pointwise/gelu.h"

#include "ops/adjoint_values.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const std::string approximate = ctx.attributes().text("approximate", "none");
  if (approximate == "none") return apply_unary<FloatTypes>(ctx, [](auto x) { return gelu_of(x); });
  if (approximate == "tanh") return apply_unary<FloatTypes>(ctx, [](auto x) { return gelu_tanh_of(x); });
  ctx.fail(fmt::format("expected approximate 'none' or 'tanh', got '{}'", approximate));
}

Value derivative(const Pointwise& p) {
  return p.ctx.attributes().text("approximate", "none") == "tanh" ? gelu_tanh_derivative(p.x())
                                                                  : gelu_derivative(p.x());
}

}  // namespace

OpDef gelu() { return unary_op("Gelu", 20, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
