// QLinearConv, ai.onnx 10: a convolution of 8-bit integers, quantized again.
#include "ops/convolution/convolve.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

// Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B (int32, scale x_scale *
// w_scale).
void infer_qlinear_conv(InferContext& ctx) {
  ctx.set_type(0, ctx.type(7));
  for (int i : {1, 4, 6}) require_type(ctx, i, DataType::kFloat32);
  require_type(ctx, 8, DataType::kInt32);
  ctx.set_shape(0, conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(3)).output_shape());
}

void run_qlinear_conv(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(3).shape());
  for (int i : {1, 2, 6, 7}) require_count(ctx, i, 1);
  for (int i : {4, 5}) require_count(ctx, i, g.out_channels);
  if (ctx.has_input(8) && ctx.input(8).size() != g.out_channels)
    ctx.fail(fmt::format("expected a bias of {} elements, got {}", g.out_channels, ctx.input(8).size()));
  const auto x = centered(ctx, ctx.input(0), zero_points(ctx, 2), 1);
  const auto w = centered(ctx, ctx.input(3), zero_points(ctx, 5), 0);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(ctx.output(0).size()));
  convolve<std::int32_t>(g, to_window3(ctx.layer(), g), x.data(), w.data(),
                         ctx.has_input(8) ? ctx.input(8).data<std::int32_t>() : nullptr, sums.data());
  const auto w_scales = ctx.input(4).values<float>();
  const double in_scale = ctx.input(1).data<float>()[0], out_scale = ctx.input(6).data<float>()[0];
  const std::int32_t zero = zero_points(ctx, 7)[0];
  const std::size_t volume = static_cast<std::size_t>(product(g.output, 0, g.output.size()));
  with_type(QuantizedTypes{}, ctx, ctx.output(0).type(), [&](auto tag) {
    using T = decltype(tag);
    T* out = ctx.output(0).data<T>();
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::size_t channel = i / volume % static_cast<std::size_t>(g.out_channels);
      const double scale = in_scale * w_scales[w_scales.size() == 1 ? 0 : channel] / out_scale;
      out[i] = quantize<T>(sums[i] * scale, zero);
    }
  });
}

}  // namespace

OpDef qlinear_conv() {
  return {.name = "QLinearConv",
          .since_version = 10,
          .inputs = {8, 9},
          .types = {kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes, kIndices},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kContraction,
          .weights = 0b111111110,
          .yields_quantized = true,
          .infer = infer_qlinear_conv,
          .run = run_qlinear_conv,
          .multiply_adds = multiply_adds_of_qlinear_conv};
}

}  // namespace ulpscope::ops
