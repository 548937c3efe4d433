// Not, ai.onnx 1: logical negation.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

struct Negated {
  template <typename T>
  T operator()(T x) const {
    return !x;
  }
};

}  // namespace

OpDef not_() {
  return {.name = "Not",
          .since_version = 1,
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_same_as_first,
          .run = run_unary<TypeList<bool>, Negated>};
}

}  // namespace ulpscope::ops
