// Conv, ai.onnx 1, 11, 22: convolution (cross-correlation) over one to three spatial dimensions.
#include "ops/common.h"
#include "ops/convolve.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1, 2});
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(1));
  if (ctx.has_input(2) && ctx.shape(2) != Shape{g.out_channels})
    ctx.fail(fmt::format("expected a bias of shape ({},), got {}", g.out_channels, to_string(ctx.shape(2))));
  ctx.set_shape(0, g.output_shape());
}

void run(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape());
  const Window3 window = to_window3(ctx.layer(), g);
  with_type(FloatTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    convolve<T>(g, window, ctx.input(0).data<T>(), ctx.input(1).data<T>(),
                ctx.has_input(2) ? ctx.input(2).data<T>() : nullptr, ctx.output(0).data<T>());
  });
}

}  // namespace

OpDef conv() {
  return {.name = "Conv", .inputs = {2, 3}, .kind = OpKind::kContraction, .weights = 0b110, .infer = infer, .run = run};
}

}  // namespace ulpscope::ops
