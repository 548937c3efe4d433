// Shrink, ai.onnx 9: moves x towards 0 by a bias outside of [-lambd, lambd]; 0 within.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const float lambd = ctx.attributes().real("lambd", 0.5F), bias = ctx.attributes().real("bias", 0);
  apply_unary<NumericTypes>(ctx, [=](auto x) {
    using T = decltype(x);
    // Integers are shrunk as the reals that they are.
    using Real = std::conditional_t<std::is_same_v<T, float>, float, double>;
    const Real value = static_cast<Real>(x);
    const Real result = value < -Real(lambd) ? value + Real(bias) : value > Real(lambd) ? value - Real(bias) : Real{0};
    if constexpr (std::is_integral_v<T>)
      return to_integer<T>(result);
    else
      return result;
  });
}

Value derivative(const Pointwise& p) {
  const double limit = p.real("lambd", 0.5F);
  return step(p.x() - limit) + step(-p.x() - limit);
}

}  // namespace

OpDef shrink() { return unary_op("Shrink", 9, run, pointwise_adjoint<derivative>); }

}  // namespace ulpscope::ops
