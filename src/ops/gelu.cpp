// Gelu, ai.onnx 20: x * Phi(x), exact or with the tanh approximation.
#include "ops/gelu.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const std::string approximate = ctx.attributes().text("approximate", "none");
  if (approximate == "none") return apply_unary<FloatTypes>(ctx, [](auto x) { return gelu_of(x); });
  if (approximate == "tanh") return apply_unary<FloatTypes>(ctx, [](auto x) { return gelu_tanh_of(x); });
  ctx.fail(fmt::format("expected approximate 'none' or 'tanh', got '{}'", approximate));
}

}  // namespace

OpDef gelu() { return unary_op("Gelu", 20, run); }

}  // namespace ulpscope::ops
