// BiasGelu, com.microsoft 1: Gelu of x plus a bias along the last axis.
#include "ops/gelu.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  apply_binary<FloatTypes>(ctx, [](auto x, auto bias) { return gelu_of(x + bias); });
}

}  // namespace

OpDef bias_gelu() {
  return {.name = "BiasGelu",
          .domain = "com.microsoft",
          .inputs = {2, 2},
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run};
}

}  // namespace ulpscope::ops
