// ConvInteger, ai.onnx 10: a convolution of 8-bit integers with int32 sums.
#include "ops/convolution/convolve.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {
namespace {

// Inputs: x, w, x_zero_point, w_zero_point (one, or one per output channel).
void infer_conv_integer(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt32);
  ctx.set_shape(0, conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(1)).output_shape());
}

void run_conv_integer(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape());
  const auto x = centered(ctx, ctx.input(0), zero_points(ctx, 2), 1);
  const auto w = centered(ctx, ctx.input(1), zero_points(ctx, 3), 0);
  convolve<std::int32_t>(g, to_window3(ctx.layer(), g), x.data(), w.data(), nullptr,
                         ctx.output(0).data<std::int32_t>());
}

}  // namespace

OpDef conv_integer() {
  return {.name = "ConvInteger",
          .since_version = 10,
          .inputs = {2, 4},
          .types = {kBytes},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kContraction,
          .weights = 0b1110,
          .yields_quantized = true,
          .infer = infer_conv_integer,
          .run = run_conv_integer,
          .multiply_adds = multiply_adds_of_conv};
}

}  // namespace ulpscope::ops
