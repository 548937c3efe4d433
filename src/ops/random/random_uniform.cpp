// RandomUniform, ai.onnx 1, 22: uniformly distributed elements (the generator: ops/random/random.h).
#include "ops/random/random.h"

namespace ulpscope::ops {

OpDef random_uniform() {
  return {.name = "RandomUniform",
          .inputs = {0, 0},
          .precision = PrecisionRule::kFixed,
          .infer = infer_random,
          .run = run_random_uniform};
}

}  // namespace ulpscope::ops
