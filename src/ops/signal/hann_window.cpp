// HannWindow, ai.onnx 17: the Hann window.
#include "ops/signal/spectrum.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { run_window(ctx, 0.5, -0.5, 0); }

}  // namespace

OpDef hann_window() {
  return {.name = "HannWindow",
          .since_version = 17,
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .infer = infer_window,
          .run = run};
}

}  // namespace ulpscope::ops
