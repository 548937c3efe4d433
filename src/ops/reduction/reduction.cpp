#include "ops/reduction/reduction.h"

#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::vector<std::int64_t> axes_of(const Context& ctx) {
  const auto rank = static_cast<std::int64_t>(shape_of(ctx, 0).size());
  std::vector<std::int64_t> axes = attribute_or_input(ctx, "axes", 1).value_or(std::vector<std::int64_t>{});
  if (axes.empty()) return axes_from(ctx.attributes().integer("noop_with_empty_axes", 0) != 0 ? rank : 0, rank);
  return normalize_axes(ctx, std::move(axes), rank);
}

}  // namespace

std::vector<std::int64_t> reduced_axes(const InferContext& ctx) { return axes_of(ctx); }
std::vector<std::int64_t> reduced_axes(const KernelContext& ctx) { return axes_of(ctx); }
std::vector<std::int64_t> reduced_axes(const AdjointContext& ctx) { return axes_of(ctx); }

void infer_reduction(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  std::vector<bool> reduced(shape.size(), false);
  for (std::int64_t axis : reduced_axes(ctx)) reduced[static_cast<std::size_t>(axis)] = true;
  const bool keep = ctx.attributes().integer("keepdims", 1) != 0;
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!reduced[d])
      result.push_back(shape[d]);
    else if (keep)
      result.push_back(1);
  }
  ctx.set_shape(0, std::move(result));
}

}  // namespace ulpscope::ops
