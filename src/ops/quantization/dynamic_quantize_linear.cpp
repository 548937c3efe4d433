// DynamicQuantizeLinear, ai.onnx 11: quantizes to uint8 with the range of the data.
#include "core/parallel.h"
#include "ops/quantization/quantization.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

// Outputs: y, y_scale, y_zero_point.
void infer_dynamic_quantize_linear(InferContext& ctx) {
  ctx.set_type(0, DataType::kUInt8);
  ctx.set(1, DataType::kFloat32, {});
  ctx.set(2, DataType::kUInt8, {});
  require_type(ctx, 0, DataType::kFloat32);
  ctx.set_shape(0, ctx.shape(0));
}

void run_dynamic_quantize_linear(KernelContext& ctx) {
  const auto x = ctx.input(0).values<float>();
  float low = 0, high = 0;
  for (float v : x) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  const float scale = high == low ? 0.0f : (high - low) / 255.0f;
  const std::uint8_t zero = scale == 0 ? std::uint8_t{0} : quantize<std::uint8_t>(-low / scale, 0);
  if (ctx.has_output(0)) {
    std::uint8_t* out = ctx.output(0).data<std::uint8_t>();
    parallel_for(ctx.input(0).size(), 1 << 14, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        out[i] = scale == 0 ? zero : quantize<std::uint8_t>(x[static_cast<std::size_t>(i)] / scale, zero);
    });
  }
  if (ctx.has_output(1)) *ctx.output(1).data<float>() = scale;
  if (ctx.has_output(2)) *ctx.output(2).data<std::uint8_t>() = zero;
}

}  // namespace

OpDef dynamic_quantize_linear() {
  return {.name = "DynamicQuantizeLinear",
          .since_version = 11,
          .outputs = {3, 3},
          .types = {kFloats},
          .precision = PrecisionRule::kFixed,
          .yields_quantized = true,
          .infer = infer_dynamic_quantize_linear,
          .run = run_dynamic_quantize_linear};
}

}  // namespace ulpscope::ops
