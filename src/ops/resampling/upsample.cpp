// Upsample, ai.onnx 7, 9, 10 (deprecated by Resize): nearest or linear interpolation with a scale per axis.
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/resampling/resampling.h"

namespace ulpscope::ops {
namespace {

// The scales are an attribute in opset 7 and input 1 from opset 9 on.
template <typename Context>
std::vector<ResampleAxis> upsample_axes(const Context& ctx, const Shape& x, const Tensor* scales) {
  std::vector<std::int64_t> axes(x.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (scales == nullptr) return axes_from_scales(ctx.layer(), x, axes, ctx.attributes().reals("scales"));
  const Tensor values = scales->cast(DataType::kFloat32);
  return axes_from_scales(ctx.layer(), x, axes, {values.values<float>().begin(), values.values<float>().end()});
}

void infer_upsample(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(
      0, resampled_shape(ctx.shape(0), upsample_axes(ctx, ctx.shape(0), ctx.has_input(1) ? &ctx.value(1) : nullptr)));
}

void run_upsample(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const auto axes = upsample_axes(ctx, x.shape(), ctx.has_input(1) ? &ctx.input(1) : nullptr);
  resample(ctx, resample_options(ctx.layer(), true), axes, x, ctx.output(0));
}

void adjoint_upsample(AdjointContext& ctx) {
  const Tensor* scales = ctx.input_value(1);
  if (ctx.has_input(1) && scales == nullptr) return ctx.leave_out(0);
  resample_adjoint(ctx, resample_options(ctx.layer(), true), upsample_axes(ctx, ctx.input_shape(0), scales));
}

}  // namespace

OpDef upsample() {
  return {.name = "Upsample",
          .since_version = 7,
          .inputs = {1, 2},
          .types = {kNumbers, kFloats},
          .function = Function::kUpsample,
          .weights = 0b10,
          .parameters = 0b10,
          .infer = infer_upsample,
          .run = run_upsample,
          .adjoint = adjoint_upsample};
}

}  // namespace ulpscope::ops
