// QuantizeLinear, ai.onnx 10, 13, 19, 21, 23, 24, 25, 28: saturate(round(x / scale) + zero point).
#include "core/parallel.h"
#include "core/rounding.h"
#include "ops/onnx_types.h"
#include "ops/scale_layout.h"

namespace ulpscope::ops {
namespace {

using TargetTypes = TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t>;

void infer(InferContext& ctx) {
  DataType type = DataType::kUInt8;
  if (ctx.has_input(2))
    type = ctx.type(2);
  else if (const std::int64_t number = ctx.attributes().integer("output_dtype", 0); number != 0)
    type = data_type_from_onnx(ctx.layer(), number);
  ctx.set_type(0, type);
  scale_layout(ctx, ctx.shape(0), ctx.shape(1));
  ctx.set_shape(0, ctx.shape(0));
}

void run(KernelContext& ctx) {
  const Tensor x = ctx.input(0).cast(DataType::kFloat32);
  const Tensor scales = ctx.input(1).cast(DataType::kFloat32);
  const ScaleLayout layout = scale_layout(ctx, x.shape(), scales.shape());
  require_count(ctx, 2, scales.size());
  const auto zero = zero_points(ctx, 2);
  // "The type of y_scale determines the precision of the division, unless `precision` is specified."
  const std::int64_t precision = ctx.attributes().integer("precision", 0);
  const Rounding rounding = precision == 0 ? Rounding::kNone : rounding_of(data_type_from_onnx(ctx.layer(), precision));
  const float* in = x.data<float>();
  const float* scale = scales.data<float>();
  with_type(TargetTypes{}, ctx, ctx.output(0).type(), [&](auto tag) {
    using T = decltype(tag);
    T* out = ctx.output(0).data<T>();
    parallel_for(x.size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t k = layout.index(i);
        const float ratio = round_value(in[i] / scale[k], rounding);
        out[i] = quantize<T>(ratio, zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(k)]);
      }
    });
  });
}

}  // namespace

OpDef quantize_linear() {
  // Never lowered: scales are fp32 on every target.
  return {.name = "QuantizeLinear",
          .since_version = 10,
          .inputs = {2, 3},
          .precision = PrecisionRule::kFixed,
          .weights = 0b110,
          .infer = infer,
          .run = run};
}

}  // namespace ulpscope::ops
