// Pow, ai.onnx 1, 7, 12, 13, 15: a to the power of b with NumPy broadcasting. The types may differ; the result has that
// of the base.
#include <cmath>

#include "ops/adjoint_values.h"
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

void adjoint(AdjointContext& ctx) {
  const Value g = gradient(ctx), x = input(ctx, 0);
  const Tensor* exponent = ctx.input_value(1);
  if (exponent != nullptr && exponent->size() == 1) {
    const double b = exponent->cast(DataType::kFloat64).data<double>()[0];
    if (b == 0) return;
    if (ctx.wants(0)) set(ctx, 0, b == 1 ? g : b == 2 ? g * (x * 2) : g * (power(x, b - 1) * b));
    return;
  }
  Value b = input(ctx, 1);
  const DataType type = exponent != nullptr ? exponent->type() : ctx.type();
  if (ctx.wants(0)) {
    if (!ctx.wants(1) && (exponent == nullptr || !is_floating(type))) b = to_float(b);
    const Value less = b - 1;
    set(ctx, 0, g * b * Value{&ctx, ctx.add("Pow", {x.id, less.id})});
  }
  // 0^b does not change with b > 0; below 0 there is no derivative.
  if (ctx.wants(1)) {
    const Value none = scalar(ctx, 0), positive{&ctx, ctx.add("Greater", {x.id, none.id})};
    set(ctx, 1, g * output(ctx) * where(positive, log(where(positive, x, scalar(ctx, 1))), none));
  }
}

}  // namespace

OpDef pow() {
  return {.name = "Pow", .inputs = {2, 2}, .kind = OpKind::kPointwise, .infer = infer, .run = run, .adjoint = adjoint};
}

}  // namespace ulpscope::ops
