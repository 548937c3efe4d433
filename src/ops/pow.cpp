// Pow, ai.onnx 1, 7, 12, 13, 15: a to the power of b with NumPy broadcasting. The types may differ; the result has that
// of the base.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

/// Exact, wrapping around. 1 / x truncates for negative exponents; 0 to a negative power gives 0.
template <typename T>
T integer_power(T base, std::int64_t exponent) noexcept {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : -1;
    return 0;
  }
  T result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = times(result, base);
    base = times(base, base);
  }
  return result;
}

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(1)));
}

void run(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  with_type(TypeList<float, double, std::int32_t, std::int64_t>{}, ctx, a.type(), [&](auto tag) {
    using T = decltype(tag);
    const auto as = [&](DataType type) { return b.type() == type ? b : b.cast(type); };
    if constexpr (std::is_floating_point_v<T>) {
      map_binary<T, T>(a, as(type_of<T>()), ctx.output(0), [](T x, T y) { return std::pow(x, y); });
    } else if (is_floating(b.type())) {
      using Function = T (*)(T, double);
      const Function power = [](T x, double y) { return to_integer<T>(std::pow(static_cast<double>(x), y)); };
      map_binary<T, T, Function, double>(a, as(DataType::kFloat64), ctx.output(0), power);
    } else {
      using Function = T (*)(T, std::int64_t);
      map_binary<T, T, Function, std::int64_t>(a, as(DataType::kInt64), ctx.output(0), integer_power<T>);
    }
  });
}

}  // namespace

OpDef pow() { return {.name = "Pow", .inputs = {2, 2}, .kind = OpKind::kPointwise, .infer = infer, .run = run}; }

}  // namespace ulpscope::ops
