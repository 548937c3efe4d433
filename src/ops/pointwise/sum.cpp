// Sum, ai.onnx 1, 6, 8, 13: the sum of the inputs with NumPy broadcasting.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Plus {
  template <typename T>
  T operator()(T a, T b) const {
    return plus(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, gradient(ctx));
}

}  // namespace

OpDef sum() {
  return {.name = "Sum",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_nary<FloatTypes, Plus>,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
