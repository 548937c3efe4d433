// CumSum, ai.onnx 11, 14: running sums along one axis, up to each element or without it.
#include "ops/cumulative.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_cumulative(ctx, 0, [](auto a, auto b) { return plus(a, b); });
}

}  // namespace

OpDef cum_sum() {
  return {.name = "CumSum",
          .since_version = 11,
          .inputs = {2, 2},
          .weights = 0b10,
          .infer = infer_same_as_first,
          .run = run};
}

}  // namespace ulpscope::ops
