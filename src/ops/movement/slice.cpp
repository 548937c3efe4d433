// Slice, ai.onnx 1 (starts, ends, axes: attributes), 10, 11, 13 (inputs, with steps): NumPy's basic slicing.
#include <algorithm>
#include <limits>
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

/// Per dimension of the input.
struct Selection {
  std::vector<std::int64_t> begin, step;
  Shape shape;
};

template <typename Context>
Selection selection(const Context& ctx) {
  const Shape& shape = shape_of(ctx, 0);
  const auto starts = attribute_or_input(ctx, "starts", 1), ends = attribute_or_input(ctx, "ends", 2);
  if (!starts || !ends) ctx.fail("starts or ends are missing");
  std::vector<std::int64_t> axes(starts->size());
  std::iota(axes.begin(), axes.end(), 0);
  if (const auto given = attribute_or_input(ctx, "axes", 3)) axes = *given;
  std::vector<std::int64_t> steps(starts->size(), 1);
  if (ctx.has_input(4)) steps = integers_of(ctx, 4);
  if (ends->size() != starts->size() || axes.size() != starts->size() || steps.size() != starts->size())
    ctx.fail(fmt::format("{} starts, {} ends, {} axes and {} steps do not belong together", starts->size(),
                         ends->size(), axes.size(), steps.size()));
  axes = normalize_axes(ctx, std::move(axes), static_cast<std::int64_t>(shape.size()));

  Selection result{std::vector<std::int64_t>(shape.size(), 0), std::vector<std::int64_t>(shape.size(), 1), shape};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t d = static_cast<std::size_t>(axes[i]);
    const std::int64_t size = shape[d];
    const std::int64_t step =
        std::max(steps[i], -std::numeric_limits<std::int64_t>::max());  // so that it can be negated
    if (step == 0) ctx.fail(fmt::format("the step of axis {} is 0", d));
    // Backwards, an element before the first one can be an end, but no start.
    const std::int64_t highest = step > 0 ? size : std::max<std::int64_t>(size - 1, 0);
    const auto place = [&](std::int64_t at, std::int64_t lowest) {
      return std::clamp(at < 0 ? at + size : at, lowest, highest);
    };
    const std::int64_t begin = place((*starts)[i], 0), end = place((*ends)[i], step > 0 ? 0 : -1);
    result.begin[d] = begin;
    result.step[d] = step;
    if (size == 0)
      result.shape[d] = 0;
    else if (step > 0)
      result.shape[d] = end > begin ? (end - begin - 1) / step + 1 : 0;
    else
      result.shape[d] = begin > end ? (begin - end - 1) / -step + 1 : 0;
  }
  return result;
}

void infer_slice(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, selection(ctx).shape);
}

void run_slice(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  if (ctx.output(0).size() == 0) return;
  const Selection select = selection(ctx);
  std::vector<std::int64_t> strides = strides_of(in.shape());
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    offset += select.begin[d] * strides[d];
    strides[d] = select.shape[d] == 1 ? 0 : strides[d] * select.step[d];
  }
  copy_strided(in.type(), element(in, offset), strides, ctx.output(0).raw(), select.shape);
}

void adjoint_slice(AdjointContext& ctx) {
  // Every axis: forwards, zeros between the elements of a step, zeros around.
  const Selection select = selection(ctx);
  const Shape& shape = ctx.input_shape(0);
  std::vector<std::int64_t> front(shape.size()), back(shape.size());
  Value g = gradient(ctx);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t n = select.shape[d];
    std::int64_t begin = select.begin[d], step = select.step[d];
    if (n == 0) {
      ctx.set(0, zeros(ctx, shape).id);
      return;
    }
    if (n == 1) step = 1;
    if (step < 0) {
      const auto axis = static_cast<std::int64_t>(d);
      g.id = ctx.add("Slice", {g.id, ctx.integers({-1}), ctx.integers({std::numeric_limits<std::int64_t>::min()}),
                               ctx.integers({axis}), ctx.integers({-1})});
      begin += (n - 1) * step;
      step = -step;
    }
    if (step > 1) {
      const Shape own = g.shape();
      Shape wide = own;
      wide.insert(wide.begin() + static_cast<std::ptrdiff_t>(d) + 1, 1);
      std::vector<std::int64_t> gap(wide.size(), 0);
      gap[d + 1] = step - 1;
      Shape flat = own;
      flat[d] = n * step;
      g = pad(reshape(g, wide), std::vector<std::int64_t>(wide.size(), 0), gap);
      g = reshape(g, flat);
    }
    front[d] = begin;
    back[d] = shape[d] - begin - n * step;  // negative where the last gap reaches beyond
  }
  ctx.set(0, pad(g, front, back).id);
}

}  // namespace

OpDef slice() {
  return {.name = "Slice",
          .inputs = {1, 5},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b11110,
          .moves_values = true,
          .infer = infer_slice,
          .run = run_slice,
          .adjoint = adjoint_slice};
}

}  // namespace ulpscope::ops
