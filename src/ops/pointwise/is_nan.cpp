// IsNaN, ai.onnx 9, 13, 20: true where an element is not a number.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    map_unary<T, bool>(ctx.input(0), ctx.output(0), [](T x) { return x != x; });
  });
}

}  // namespace

OpDef is_nan() {
  return {.name = "IsNaN",
          .since_version = 9,
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .storage_types = StorageTypes::kTaken,
          .infer = infer_comparison,
          .run = run};
}

}  // namespace ulpscope::ops
