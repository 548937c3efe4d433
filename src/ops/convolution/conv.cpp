// Conv, ai.onnx 1, 11, 22: convolution (cross-correlation) over one to three spatial dimensions.
#include "ops/adjoint_linear.h"
#include "ops/common.h"
#include "ops/convolution/convolve.h"
#include "ops/multiply_adds.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

void infer_conv(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1, 2});
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(1));
  if (ctx.has_input(2) && ctx.shape(2) != Shape{g.out_channels})
    ctx.fail(fmt::format("expected a bias of shape ({},), got {}", g.out_channels, to_string(ctx.shape(2))));
  ctx.set_shape(0, g.output_shape());
}

void run_conv(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape());
  const Window3 window = to_window3(ctx.layer(), g);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    convolve<T>(g, window, ctx.input(0).data<T>(), ctx.input(1).data<T>(),
                ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr, ctx.output(0).data<T>());
  });
}

void adjoint_conv(AdjointContext& ctx) {
  const WindowGeometry geometry = conv_geometry(ctx.layer(), ctx.input_shape(0), ctx.input_shape(1));
  const Value g = gradient(ctx);
  if (ctx.wants(0)) ctx.set(0, convolution_input_gradient(g, input(ctx, 1), geometry).id);
  if (ctx.wants(1)) ctx.set(1, convolution_weight_gradient(input(ctx, 0), g, geometry).id);
  if (ctx.wants(2)) {
    const std::size_t rank = ctx.output_shape(0).size();
    std::vector<std::int64_t> axes = axes_after(1, rank);
    axes[0] = 0;
    ctx.set(2, reshape(sum(g, axes), ctx.input_shape(2)).id);
  }
}

}  // namespace

OpDef conv() {
  return {.name = "Conv",
          .inputs = {2, 3},
          .types = {kFloats},
          .kind = OpKind::kContraction,
          .function = Function::kConv,
          .weights = 0b110,
          .infer = infer_conv,
          .run = run_conv,
          .adjoint = adjoint_conv,
          .multiply_adds = multiply_adds_of_conv};
}

}  // namespace ulpscope::ops
