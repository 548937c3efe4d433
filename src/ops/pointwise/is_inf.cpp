// IsInf, ai.onnx 10, 20: true where an element is an infinity of a sign that is asked for.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void run(KernelContext& ctx) {
  const bool positive = ctx.attributes().integer("detect_positive", 1) != 0;
  const bool negative = ctx.attributes().integer("detect_negative", 1) != 0;
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    constexpr T infinity = std::numeric_limits<T>::infinity();
    map_unary<T, bool>(ctx.input(0), ctx.output(0),
                       [=](T x) { return (positive && x == infinity) || (negative && x == -infinity); });
  });
}

}  // namespace

OpDef is_inf() {
  return {.name = "IsInf",
          .since_version = 10,
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .storage_types = StorageTypes::kTaken,
          .infer = infer_comparison,
          .run = run};
}

}  // namespace ulpscope::ops
