// Clip, ai.onnx 1, 6 (limits: attributes), 11, 12, 13 (limits: inputs): min(max(x, low), high); NaN stays NaN.
#include <optional>

#include "ops/adjoint_values.h"
#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

template <typename T>
std::optional<T> limit(const KernelContext& ctx, int input, std::string_view attribute) {
  if (ctx.has_input(input)) {
    const Tensor& value = ctx.input(input);
    if (value.size() != 1 || value.type() != type_of<T>())
      ctx.fail(fmt::format("expected one element of type {} as input {}, got {}{}", name_of(type_of<T>()), input,
                           name_of(value.type()), to_string(value.shape())));
    return value.data<T>()[0];
  }
  if (!ctx.attributes().has(attribute)) return std::nullopt;
  const float value = ctx.attributes().real(attribute, 0);
  if constexpr (std::is_integral_v<T>)
    return to_integer<T>(value);
  else
    return static_cast<T>(value);
}

void run(KernelContext& ctx) {
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    using Limits = std::numeric_limits<T>;
    const T low = limit<T>(ctx, 1, "min").value_or(Limits::has_infinity ? -Limits::infinity() : Limits::lowest());
    const T high = limit<T>(ctx, 2, "max").value_or(Limits::has_infinity ? Limits::infinity() : Limits::max());
    map_unary<T, T>(ctx.input(0), ctx.output(0), [=](T x) {
      // At a limit, the limit's sign of zero, as in the fused kernels.
      const T raised = x <= low ? low : x;
      return raised >= high ? high : raised;
    });
  });
}

void adjoint(AdjointContext& ctx) {
  const auto limit = [&](int i, const char* name) -> std::optional<Value> {
    if (ctx.has_input(i)) return input(ctx, i);
    if (!ctx.attributes().has(name)) return std::nullopt;
    return scalar(ctx, static_cast<double>(ctx.attributes().real(name, 0)));
  };
  // 1 where y lies inside of the limits, by what it is: y is at a limit otherwise.
  const auto low = limit(1, "min"), high = limit(2, "max");
  const Value g = gradient(ctx), y = output(ctx);
  if (ctx.wants(0)) {
    Value result = g;
    if (low) result = result * sign(y - *low);
    if (high) result = result * sign(*high - y);
    ctx.set(0, result.id);
  }
  if (ctx.wants(1)) set(ctx, 1, g * step(*low - input(ctx, 0)));
  if (ctx.wants(2)) set(ctx, 2, g * step(input(ctx, 0) - *high));
}

}  // namespace

OpDef clip() {
  return {.name = "Clip",
          .inputs = {1, 3},
          .kind = OpKind::kPointwise,
          .weights = 0b110,
          .infer = infer_same_as_first,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
