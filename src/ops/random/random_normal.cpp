// RandomNormal, ai.onnx 1, 22: normally distributed elements (the generator: ops/random/random.h).
#include "ops/random/random.h"

namespace ulpscope::ops {

OpDef random_normal() {
  return {.name = "RandomNormal",
          .inputs = {0, 0},
          .precision = PrecisionRule::kFixed,
          .infer = infer_random,
          .run = run_random_normal};
}

}  // namespace ulpscope::ops
