// BlackmanWindow, ai.onnx 17: the Blackman window.
#include "ops/signal/spectrum.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { run_window(ctx, 0.42, -0.5, 0.08); }

}  // namespace

OpDef blackman_window() {
  return {.name = "BlackmanWindow",
          .since_version = 17,
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .infer = infer_window,
          .run = run};
}

}  // namespace ulpscope::ops
