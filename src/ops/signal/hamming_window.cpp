// HammingWindow, ai.onnx 17: the Hamming window.
#include "ops/signal/spectrum.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) { run_window(ctx, 25.0 / 46, -21.0 / 46, 0); }

}  // namespace

OpDef hamming_window() {
  return {.name = "HammingWindow",
          .since_version = 17,
          .precision = PrecisionRule::kFixed,
          .weights = 0b1,
          .infer = infer_window,
          .run = run};
}

}  // namespace ulpscope::ops
