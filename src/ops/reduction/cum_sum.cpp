// CumSum, ai.onnx 11, 14: running sums along one axis, up to each element or without it.
#include "ops/adjoint_values.h"
#include "ops/reduction/cumulative.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_cumulative(ctx, 0, [](auto a, auto b) { return plus(a, b); });
}

void adjoint(AdjointContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  ctx.set(0, ctx.add("CumSum", {ctx.gradient(0), ctx.input(1)},
                     {{"exclusive", attributes.integer("exclusive", 0)},
                      {"reverse", std::int64_t{attributes.integer("reverse", 0) == 0}}}));
}

}  // namespace

OpDef cum_sum() {
  return {.name = "CumSum",
          .since_version = 11,
          .inputs = {2, 2},
          .weights = 0b10,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
