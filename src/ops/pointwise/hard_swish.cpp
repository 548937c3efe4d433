// HardSwish, ai.onnx 14, 22: x * max(0, min(1, x / 6 + 0.5)).
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Gated {
  template <typename T>
  T operator()(T x) const {
    return x * std::clamp(x * T(1.0 / 6) + T(0.5), T{0}, T{1});
  }
};

Value derivative(const Pointwise& p) {  // The gate and its derivative; it is closed or open outside of [-3, 3].
  const Value x = p.x(), gate{&p.ctx, p.ctx.add("HardSigmoid", {x.id}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}})};
  return gate + x * sign(gate * (1 - gate)) * (1.0 / 6);
}

}  // namespace

OpDef hard_swish() { return unary_op("HardSwish", 14, run_unary<FloatTypes, Gated>, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
