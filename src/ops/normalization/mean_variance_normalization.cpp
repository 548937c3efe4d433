// MeanVarianceNormalization, ai.onnx 9, 13: (x - mean) / (deviation + 1e-9) over axes (default 0, 2, 3).
#include "ops/adjoint_values.h"
#include "ops/movement.h"
#include "ops/normalization/normalization.h"

namespace ulpscope::ops {
namespace {

void run_mean_variance_normalization(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::vector<std::int64_t> axes = normalize_axes(ctx, ctx.attributes().integers("axes", {0, 2, 3}), in.rank());
  with_type(FloatTypes{}, ctx, in.type(), [&](auto tag) {
    using T = decltype(tag);
    map_rows<T>(in, ctx.output(0), axes, [](const T* x, T* y, std::int64_t length) {
      const T mean = mean_of(x, length);
      const T deviation = std::sqrt(variance_of(x, length, mean)) + T(1e-9);
      for (std::int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) / deviation;
    });
  });
}

void adjoint_mean_variance_normalization(AdjointContext& ctx) {
  std::vector<std::int64_t> axes = ctx.attributes().integers("axes", {0, 2, 3});
  for (std::int64_t& axis : axes) axis = positive_axis(axis, ctx.input_shape(0).size());
  const Value x = input(ctx, 0), centred = x - mean(x, axes), deviation = sqrt(mean(square(centred), axes));
  const Value inverse = 1 / (deviation + 1e-9), y = centred * inverse;
  const Value g = (gradient(ctx) - centred / deviation * mean(gradient(ctx) * y, axes)) * inverse;
  ctx.set(0, (g - mean(g, axes)).id);
}

std::optional<std::vector<std::int64_t>> axes_of_mean_variance(const Layer& layer, std::int64_t rank, const Tensor*) {
  return sorted_axes(layer.attributes.integers("axes", {0, 2, 3}), rank);
}

}  // namespace

OpDef mean_variance_normalization() {
  return {.name = "MeanVarianceNormalization",
          .since_version = 9,
          .types = {kFloats},
          .kind = OpKind::kNormalization,
          .infer = infer_same_as_first,
          .run = run_mean_variance_normalization,
          .adjoint = adjoint_mean_variance_normalization,
          .axes = axes_of_mean_variance};
}

}  // namespace ulpscope::ops
