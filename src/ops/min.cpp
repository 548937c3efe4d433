// Min, ai.onnx 1, 6, 8, 12, 13: the smallest of the inputs, element by element; NaN wins.
#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Smaller {
  template <typename T>
  T operator()(T a, T b) const {
    return smaller(a, b);
  }
};

void adjoint(AdjointContext& ctx) {
  // Inputs that are the result share its gradient.
  const Value y = output(ctx);
  std::vector<Value> chosen;
  for (int i = 0; i < ctx.num_inputs(); ++i) chosen.push_back(1 - abs(sign(input(ctx, i) - y)));
  Value count = chosen[0];
  for (std::size_t i = 1; i < chosen.size(); ++i) count = count + chosen[i];
  const Value share = gradient(ctx) / count;
  for (int i = 0; i < ctx.num_inputs(); ++i)
    if (ctx.wants(i)) set(ctx, i, share * chosen[static_cast<std::size_t>(i)]);
}

}  // namespace

OpDef min() {
  return {.name = "Min",
          .inputs = {1, kAnyNumber},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run_nary<NumericTypes, Smaller>,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
