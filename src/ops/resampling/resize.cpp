// Resize, ai.onnx 10, 11, 13, 18, 19: interpolation to other sizes.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/indexing/to_index.h"
#include "ops/movement.h"
#include "ops/resampling/resampling.h"

namespace ulpscope::ops {
namespace {

const Tensor& tensor_of(const InferContext& ctx, int i) { return ctx.value(i); }
const Tensor& tensor_of(const KernelContext& ctx, int i) { return ctx.input(i); }
const Tensor& tensor_of(const AdjointContext& ctx, int i) {
  if (ctx.input_value(i) == nullptr) throw NotKnownYet{};
  return *ctx.input_value(i);
}

template <typename Context>
std::vector<float> floats_of(const Context& ctx, int i) {
  const Tensor values = tensor_of(ctx, i).cast(DataType::kFloat32);
  return {values.template values<float>().begin(), values.template values<float>().end()};
}

/// An input that is absent, or empty: the form in which files of opset 11 leave it out.
template <typename Context>
bool given(const Context& ctx, int i) {
  return ctx.has_input(i) && num_elements(shape_of(ctx, i)) > 0;
}

template <typename Context>
std::vector<ResampleAxis> axes_from_sizes(const Context& ctx, const Shape& x, const std::vector<std::int64_t>& axes,
                                          const std::vector<std::int64_t>& sizes) {
  if (sizes.size() != axes.size())
    ctx.fail(fmt::format("expected {} sizes, one per axis, got {}", axes.size(), sizes.size()));
  std::vector<ResampleAxis> result;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::int64_t input = x[static_cast<std::size_t>(axes[i])];
    result.push_back({axes[i], sizes[i], input == 0 ? 1 : static_cast<float>(sizes[i]) / static_cast<float>(input)});
  }
  const std::string policy = ctx.attributes().text("keep_aspect_ratio_policy", "stretch");
  if (policy == "stretch" || result.empty()) return result;
  if (policy != "not_larger" && policy != "not_smaller")
    ctx.fail(fmt::format("'{}' is not a value of 'keep_aspect_ratio_policy'", policy));
  const auto by_scale = [](const ResampleAxis& a, const ResampleAxis& b) { return a.scale < b.scale; };
  const float scale = policy == "not_larger" ? std::min_element(result.begin(), result.end(), by_scale)->scale
                                             : std::max_element(result.begin(), result.end(), by_scale)->scale;
  for (ResampleAxis& a : result) {
    a.scale = scale;
    a.output = to_index(std::floor(scale * static_cast<float>(x[static_cast<std::size_t>(a.axis)]) + 0.5f));
  }
  return result;
}

// Inputs: X, scales (opset 10), or X, roi, scales, sizes.
template <typename Context>
std::vector<ResampleAxis> resize_axes(const Context& ctx) {
  const Shape& x = shape_of(ctx, 0);
  std::vector<std::int64_t> axes = ctx.attributes().integers("axes");
  if (axes.empty()) {
    axes.resize(x.size());
    std::iota(axes.begin(), axes.end(), 0);
  }
  for (auto& axis : axes) axis = normalize_axis(ctx, axis, static_cast<std::int64_t>(x.size()));
  const int scales = ctx.opset() < 11 ? 1 : 2;
  if (!given(ctx, scales) && !given(ctx, 3)) ctx.fail("expected 'scales' or 'sizes', got neither");
  if (given(ctx, scales)) return axes_from_scales(ctx.layer(), x, axes, floats_of(ctx, scales));
  return axes_from_sizes(ctx, x, axes, integers_of(ctx, 3));
}

void infer_resize(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  resample_options(ctx.layer(), ctx.opset() < 11);
  const Shape shape = resampled_shape(ctx.shape(0), resize_axes(ctx));
  ctx.set_shape(0, shape);
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (ctx.shape(0)[d] == 0 && shape[d] > 0)
      ctx.fail(fmt::format("nothing can be enlarged to {} elements (dimension {})", shape[d], d));
}

/// The resize_axes with the regions that tf_crop_and_resize reads.
template <typename Context>
std::vector<ResampleAxis> cropped_plan(const Context& ctx, const ResampleOptions& options) {
  std::vector<ResampleAxis> axes = resize_axes(ctx);
  if (options.coordinates != "tf_crop_and_resize") return axes;
  if (!given(ctx, 1)) ctx.fail("coordinate_transformation_mode 'tf_crop_and_resize' needs the input 'roi'");
  const auto roi = floats_of(ctx, 1);
  if (roi.size() != 2 * axes.size())
    ctx.fail(fmt::format("expected {} values in 'roi', got {}", 2 * axes.size(), roi.size()));
  for (std::size_t i = 0; i < axes.size(); ++i) {
    axes[i].roi_start = roi[i];
    axes[i].roi_end = roi[i + axes.size()];
  }
  return axes;
}

void run_resize(KernelContext& ctx) {
  const ResampleOptions options = resample_options(ctx.layer(), ctx.opset() < 11);
  const auto axes = cropped_plan(ctx, options);
  resample(ctx, options, axes, ctx.input(0), ctx.output(0));
}

void adjoint_resize(AdjointContext& ctx) {
  const ResampleOptions options = resample_options(ctx.layer(), ctx.opset() < 11);
  resample_adjoint(ctx, options, cropped_plan(ctx, options));
}

}  // namespace

OpDef resize() {
  return {.name = "Resize",
          .since_version = 10,
          .inputs = {1, 4},
          .types = {kNumbers, kFloats, kFloats, kIndices},
          .function = Function::kResize,
          .weights = 0b1110,
          .parameters = 0b1110,
          .infer = infer_resize,
          .run = run_resize,
          .adjoint = adjoint_resize};
}

}  // namespace ulpscope::ops
