// ArgMax, ai.onnx 1, 11, 12, 13: the index of the largest element along an axis.
#include "ops/reduction/arg_extreme.h"

namespace ulpscope::ops {
namespace {

struct Larger {
  template <typename T>
  bool operator()(T a, T b) const {
    return a > b;
  }
};

}  // namespace

OpDef arg_max() {
  return {
      .name = "ArgMax", .precision = PrecisionRule::kFixed, .infer = infer_arg_extreme, .run = run_arg_extreme<Larger>};
}

}  // namespace ulpscope::ops
