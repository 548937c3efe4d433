// RandomUniformLike, ai.onnx 1, 22: uniformly distributed elements in the shape of the input (the generator:
// ops/random/random.h).
#include "ops/random/random.h"

namespace ulpscope::ops {

OpDef random_uniform_like() {
  return {.name = "RandomUniformLike",
          .inputs = {1, 1},
          .precision = PrecisionRule::kFixed,
          .infer = infer_random_like,
          .run = run_random_uniform};
}

}  // namespace ulpscope::ops
