// CenterCropPad, ai.onnx 18: cuts or zero-pads around the centre to a given size.
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

// Inputs: input_data, shape (of all axes, or of those in the attribute `axes`).
template <typename Context>
Shape centered_shape(const Context& ctx) {
  Shape shape = shape_of(ctx, 0);
  const std::int64_t rank = static_cast<std::int64_t>(shape.size());
  std::vector<std::int64_t> axes = ctx.attributes().integers("axes");
  if (!ctx.attributes().has("axes")) {
    axes.resize(shape.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  axes = normalize_axes(ctx, axes, rank);
  const auto sizes = integers_of(ctx, 1);
  if (sizes.size() != axes.size())
    ctx.fail(fmt::format("expected {} sizes, one per axis, got {}", axes.size(), sizes.size()));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (sizes[i] < 0) ctx.fail(fmt::format("expected sizes >= 0, got {}", sizes[i]));
    shape[static_cast<std::size_t>(axes[i])] = sizes[i];
  }
  return shape;
}

void infer_center_crop_pad(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, centered_shape(ctx));
}

void run_center_crop_pad(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const auto in_strides = strides_of(in.shape()), out_strides = strides_of(out.shape());
  const std::uint64_t zero = 0;
  fill_elements(out.type(), out.raw(), out.size(), &zero);
  Shape common;
  std::int64_t from = 0, to = 0;
  for (std::size_t d = 0; d < out.shape().size(); ++d) {
    const std::int64_t a = in.shape()[d], b = out.shape()[d];
    common.push_back(std::min(a, b));
    if (a > b)
      from += (a - b) / 2 * in_strides[d];
    else
      to += (b - a) / 2 * out_strides[d];
  }
  if (num_elements(common) == 0) return;
  copy_strided(out.type(), element(in, from), in_strides, element(out, to), out_strides, common);
}

void adjoint_center_crop_pad(AdjointContext& ctx) {
  const Shape &in = ctx.input_shape(0), &out = ctx.output_shape(0);
  std::vector<std::int64_t> front, back;
  for (std::size_t d = 0; d < in.size(); ++d) {
    const std::int64_t more = in[d] - out[d];
    front.push_back(more / 2);
    back.push_back(more - more / 2);
  }
  ctx.set(0, pad(gradient(ctx), front, back).id);
}

}  // namespace

OpDef center_crop_pad() {
  return {.name = "CenterCropPad",
          .since_version = 18,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .infer = infer_center_crop_pad,
          .run = run_center_crop_pad,
          .adjoint = adjoint_center_crop_pad};
}

}  // namespace ulpscope::ops
