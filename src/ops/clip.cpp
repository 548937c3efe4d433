// Clip, ai.onnx 1, 6 (limits: attributes), 11, 12, 13 (limits: inputs): min(max(x, low), high); NaN stays NaN.
#include <optional>

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
      const T raised = x < low ? low : x;
      return raised > high ? high : raised;
    });
  });
}

}  // namespace

OpDef clip() {
  return {.name = "Clip",
          .inputs = {1, 3},
          .kind = OpKind::kPointwise,
          .weights = 0b110,
          .infer = infer_same_as_first,
          .run = run};
}

}  // namespace ulpscope::ops
