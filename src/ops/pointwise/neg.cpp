// Neg, ai.onnx 1, 6, 13: -x.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Negation {
  template <typename T>
  T operator()(T x) const {
    if constexpr (std::is_integral_v<T>)
      return minus(T{0}, x);
    else
      return -x;
  }
};

void adjoint(AdjointContext& ctx) { ctx.set(0, (-gradient(ctx)).id); }

}  // namespace

OpDef neg() { return unary_op("Neg", 1, run_unary<NumericTypes, Negation>, adjoint); }

}  // namespace ulpscope::ops
