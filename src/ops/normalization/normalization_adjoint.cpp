#include "ops/normalization/normalization.h"

namespace ulpscope::ops {

Normalized normalize_adjoint(Value x, Value gradient, const std::vector<std::int64_t>& axes, double epsilon,
                             bool centred) {
  const Value c = centred ? x - mean(x, axes) : x;
  const Value inverse = 1 / sqrt(mean(square(c), axes) + epsilon);
  const Value result = c * inverse;
  const Value along = gradient - result * mean(gradient * result, axes);
  return {inverse, result, (centred ? along - mean(gradient, axes) : along) * inverse};
}

Value normalization_adjoint(AdjointContext& ctx, Value x, std::int64_t axis, double epsilon, bool centred, int scale,
                            int shift, int mean_output, int inverse_output) {
  const Shape shape = x.shape();
  const std::vector<std::int64_t> axes = axes_after(positive_axis(axis, shape.size()), shape.size());
  const Value g = ctx.gradient(0) != kNone ? gradient(ctx, 0) : zeros(ctx, shape);
  const Normalized n = normalize_adjoint(x, g * input(ctx, scale), axes, epsilon, centred);
  if (ctx.wants(scale)) set(ctx, scale, g * n.result);
  if (shift >= 0 && ctx.wants(shift)) set(ctx, shift, g);
  Value result = n.gradient;
  double count = 1;
  for (std::int64_t a : axes) count *= static_cast<double>(shape[static_cast<std::size_t>(a)]);
  if (mean_output >= 0 && centred && ctx.gradient(mean_output) != kNone)
    result = result + gradient(ctx, mean_output) * (1 / count);
  if (inverse_output >= 0 && ctx.gradient(inverse_output) != kNone)
    result = result - n.result * (gradient(ctx, inverse_output) * square(n.inverse) * (1 / count));
  return result;
}

void group_normalization_adjoint(AdjointContext& ctx, std::int64_t groups) {
  const Shape shape = ctx.input_shape(0);
  if (num_elements(shape) == 0) return;
  const std::int64_t samples = shape[0], channels = shape[1], inner = product(shape, 2, shape.size());
  const std::int64_t length = channels / groups * inner;
  const double epsilon = static_cast<double>(ctx.attributes().real("epsilon", 1e-5F));
  // Parameters per channel, or per group, broadcast over (sample, group, channel of the group, position).
  const std::int64_t per_group = num_elements(ctx.input_shape(1)) == channels ? channels / groups : 1;
  const Shape parts{samples, groups, channels / groups, inner}, parameters{1, groups, per_group, 1};
  const Value g = reshape(gradient(ctx), parts);
  const auto rows = [&](Value x) { return reshape(x, {samples, groups, length}); };
  const Normalized n =
      normalize_adjoint(rows(input(ctx, 0)), rows(g * reshape(input(ctx, 1), parameters)), {2}, epsilon, true);
  if (ctx.wants(0)) ctx.set(0, reshape(n.gradient, shape).id);
  if (ctx.wants(1)) ctx.set(1, reshape(sum_to(g * reshape(n.result, parts), parameters), ctx.input_shape(1)).id);
  if (ctx.wants(2)) ctx.set(2, reshape(sum_to(g, parameters), ctx.input_shape(2)).id);
}

}  // namespace ulpscope::ops
