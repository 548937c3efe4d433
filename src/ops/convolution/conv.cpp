// Convolution and its transpose.
#include "ops/adjoint_linear.h"
#include "ops/contraction/accumulated.h"
#include "ops/convolution/convolve.h"
#include "ops/convolution/convolve_channels.h"
#include "ops/movement.h"
#include "ops/multiply_adds.h"

namespace ulpscope::ops {
namespace {

template <bool transposed, typename Context>
WindowGeometry geometry_of(const Context& ctx) {
  const auto geometry = transposed ? conv_transpose_geometry : conv_geometry;
  return geometry(ctx.layer(), shape_of(ctx, 0), shape_of(ctx, 1));
}

template <bool transposed>
void infer_conv(InferContext& ctx) {
  require_type_of_first(ctx, {1, 2});
  const WindowGeometry g = geometry_of<transposed>(ctx);
  if (ctx.has_input(2) && ctx.shape(2) != Shape{g.out_channels})
    ctx.fail("expected a bias of shape ({},), got {}", g.out_channels, to_string(ctx.shape(2)));
  ctx.set_shape(0, g.output_shape());
}

void add_per_channel(const WindowGeometry& g, const float* bias, float* out) {
  const std::int64_t positions = num_elements(g.output);
  for (std::int64_t plane = 0; plane < g.batch * g.out_channels; ++plane)
    for (std::int64_t i = 0; i < positions; ++i) out[plane * positions + i] += bias[plane % g.out_channels];
}

template <bool transposed>
void run_conv(KernelContext& ctx) {
  const WindowGeometry g = geometry_of<transposed>(ctx);
  const Window3 window = to_window3(ctx.layer(), g);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T *x = ctx.input(0).data<T>(), *w = ctx.input(1).data<T>();
    const T* bias = ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr;
    T* out = ctx.output(0).data<T>();
    if constexpr (std::is_same_v<T, float>) {
      if (ctx.accumulator() != nullptr) {
        convolve_accumulated(*ctx.accumulator(), g, window, transposed, x, w, out);
        if (bias != nullptr) add_per_channel(g, bias, out);
        return;
      }
    }
    if constexpr (std::is_same_v<T, float> && !transposed)
      if (convolves_channels(g)) return convolve_channels(g, window, x, w, bias, out);
    convolve<T, transposed>(g, window, x, w, bias, out);
  });
}

void adjoint_bias(AdjointContext& ctx) {
  if (!ctx.wants(2)) return;
  std::vector<std::int64_t> axes = axes_after(1, ctx.output_shape(0).size());
  axes[0] = 0;
  ctx.set(2, reshape(sum(gradient(ctx), axes), ctx.input_shape(2)).id);
}

void adjoint_conv(AdjointContext& ctx) {
  const WindowGeometry geometry = geometry_of<false>(ctx);
  const Value g = gradient(ctx);
  if (ctx.wants(0)) ctx.set(0, convolution_input_gradient(g, input(ctx, 1), geometry).id);
  if (ctx.wants(1)) ctx.set(1, convolution_weight_gradient(input(ctx, 0), g, geometry).id);
  adjoint_bias(ctx);
}

void adjoint_conv_transpose(AdjointContext& ctx) {
  // The adjoint of a convolution from its output to its input.
  const WindowGeometry own = geometry_of<true>(ctx);
  WindowGeometry forward = own;
  std::swap(forward.in_channels, forward.out_channels);
  std::swap(forward.input, forward.output);
  for (std::size_t d = 0; d < own.rank(); ++d)
    forward.pads_end[d] = (forward.output[d] - 1) * own.strides[d] + (own.kernel[d] - 1) * own.dilations[d] + 1 -
                          own.pads_begin[d] - forward.input[d];
  const Value g = gradient(ctx);
  if (ctx.wants(0)) {
    const std::size_t rank = own.rank();
    // Pads of a convolution are not negative here: what a transposed one crops or adds is padded or cut.
    std::vector<std::int64_t> front(rank + 2, 0), back(rank + 2, 0);
    Shape pads(2 * rank, 0);
    for (std::size_t d = 0; d < rank; ++d) {
      (forward.pads_begin[d] < 0 ? front[d + 2] : pads[d]) = forward.pads_begin[d];
      (forward.pads_end[d] < 0 ? back[d + 2] : pads[rank + d]) = forward.pads_end[d];
    }
    ctx.set(0, ctx.add("Conv", {pad(g, front, back).id, ctx.input(1)},
                       {{"dilations", own.dilations},
                        {"group", own.groups},
                        {"kernel_shape", own.kernel},
                        {"pads", pads},
                        {"strides", own.strides}}));
  }
  if (ctx.wants(1)) ctx.set(1, convolution_weight_gradient(g, input(ctx, 0), forward).id);
  adjoint_bias(ctx);
}

/// A row of the table.
OpDef conv_op(OpDef op, Infer infer, Run run, Adjoint adjoint) {
  op.inputs = {2, 3};
  op.types = {kFloats};
  op.kind = OpKind::kContraction;
  op.weights = 0b110;
  return make_op(op, infer, run, adjoint);
}

}  // namespace

OpTable conv() {
  return {
      // Conv, ai.onnx 1, 11, 22: convolution (cross-correlation) over one to three spatial dimensions.
      conv_op({.name = "Conv", .function = Function::kConv, .multiply_adds = multiply_adds_of_conv}, infer_conv<false>,
              run_conv<false>, adjoint_conv),
      // ConvTranspose, ai.onnx 1, 11, 22: the gradient of a convolution with respect to its input.
      conv_op({.name = "ConvTranspose",
               .function = Function::kConvTranspose,
               .multiply_adds = multiply_adds_of_conv_transpose},
              infer_conv<true>, run_conv<true>, adjoint_conv_transpose),
  };
}

}  // namespace ulpscope::ops
