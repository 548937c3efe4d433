// ArgMin, ai.onnx 1, 11, 12, 13: the index of the smallest element along an axis.
#include "ops/reduction/arg_extreme.h"

namespace ulpscope::ops {
namespace {

struct Smaller {
  template <typename T>
  bool operator()(T a, T b) const {
    return a < b;
  }
};

}  // namespace

OpDef arg_min() {
  return {.name = "ArgMin",
          .precision = PrecisionRule::kFixed,
          .infer = infer_arg_extreme,
          .run = run_arg_extreme<Smaller>};
}

}  // namespace ulpscope::ops
