// CumProd, ai.onnx 26: running products along one axis, up to each element or without it.
#include "ops/reduction/cumulative.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  run_cumulative(ctx, 1, [](auto a, auto b) { return times(a, b); });
}

}  // namespace

OpDef cum_prod() {
  return {.name = "CumProd",
          .since_version = 26,
          .inputs = {2, 2},
          .weights = 0b10,
          .infer = infer_same_as_first,
          .run = run};
}

}  // namespace ulpscope::ops
