// LogSoftmax, ai.onnx 1, 11 (flattens from axis on), 13 (along axis): x - log(sum(e^x)), without overflow.
#include "ops/softmax.h"

namespace ulpscope::ops {

OpDef log_softmax() {
  return {.name = "LogSoftmax",
          .kind = OpKind::kSoftmax,
          .infer = infer_softmax,
          .run = run_softmax<FloatTypes, LogShares>};
}

}  // namespace ulpscope::ops
