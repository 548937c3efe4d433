// Mod, ai.onnx 10, 13, 28: the remainder of a / b with the sign of b or, with fmod, that of a. Integers: 0 for b = 0.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

template <typename T>
T remainder_like_dividend(T a, T b) noexcept {
  if constexpr (std::is_floating_point_v<T>) {
    return std::fmod(a, b);
  } else {
    if (b == 0) return 0;
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return static_cast<T>(a % b);
  }
}

template <typename T>
T remainder_like_divisor(T a, T b) noexcept {
  const T remainder = remainder_like_dividend(a, b);
  if constexpr (std::is_unsigned_v<T>)
    return remainder;
  else {
    if (remainder != 0) return (remainder < 0) != (b < 0) ? plus(remainder, b) : remainder;
    if constexpr (std::is_floating_point_v<T>)
      return std::copysign(T{0}, b);
    else
      return 0;
  }
}

void run(KernelContext& ctx) {
  const bool like_dividend = ctx.attributes().integer("fmod", 0) != 0;
  apply_binary<NumericTypes>(ctx, [like_dividend](auto a, auto b) {
    return like_dividend ? remainder_like_dividend(a, b) : remainder_like_divisor(a, b);
  });
}

void adjoint(AdjointContext& ctx) {
  // y = a - k b with a whole k.
  const Value g = gradient(ctx);
  if (ctx.wants(0)) set(ctx, 0, g);
  if (ctx.wants(1)) set(ctx, 1, -g * ((input(ctx, 0) - output(ctx)) / input(ctx, 1)).with("Round"));
}

}  // namespace

OpDef mod() { return binary_op("Mod", 10, run, adjoint); }

}  // namespace ulpscope::ops
