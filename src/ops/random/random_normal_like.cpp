// RandomNormalLike, ai.onnx 1, 22: normally distributed elements in the shape of the input (the generator:
// ops/random/random.h).
#include "ops/random/random.h"

namespace ulpscope::ops {

OpDef random_normal_like() {
  return {.name = "RandomNormalLike",
          .inputs = {1, 1},
          .precision = PrecisionRule::kFixed,
          .infer = infer_random_like,
          .run = run_random_normal};
}

}  // namespace ulpscope::ops
