// BitShift, ai.onnx 11, 28 (signed types): shifts bits to the left or, keeping the sign, to the right.
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

template <typename T>
T shifted_left(T x, T by) noexcept {
  if (by < 0 || by >= static_cast<T>(8 * sizeof(T))) return 0;
  return static_cast<T>(static_cast<Arithmetic<T>>(x) << by);
}

/// Arithmetic for signed types. Shifts out of range leave nothing but copies of the sign.
template <typename T>
T shifted_right(T x, T by) noexcept {
  if (by < 0 || by >= static_cast<T>(8 * sizeof(T))) return static_cast<T>(x < 0 ? -1 : 0);
  return static_cast<T>(x >> by);
}

void run(KernelContext& ctx) {
  const std::string direction = ctx.attributes().text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT")
    ctx.fail(fmt::format("expected direction LEFT or RIGHT, got '{}'", direction));
  const bool left = direction == "LEFT";
  apply_binary<IntegerTypes>(ctx,
                             [left](auto x, auto by) { return left ? shifted_left(x, by) : shifted_right(x, by); });
}

}  // namespace

OpDef bit_shift() {
  return {.name = "BitShift",
          .since_version = 11,
          .inputs = {2, 2},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kPointwise,
          .infer = infer_broadcast,
          .run = run};
}

}  // namespace ulpscope::ops
