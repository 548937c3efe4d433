// Split, ai.onnx 1, 2, 11 (sizes: attribute `split`), 13 (sizes: input), 18 (or num_outputs): cuts along an axis.
#include <algorithm>
#include <array>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

std::vector<std::int64_t> part_sizes(const InferContext& ctx, std::int64_t size) {
  const std::int64_t parts = ctx.num_outputs();
  if (const auto sizes = attribute_or_input(ctx, "split", 1)) {
    std::int64_t sum = 0;
    for (std::int64_t part : *sizes) {
      if (part < 0 || part > size)
        ctx.fail(fmt::format("a part of {} does not fit into a dimension of {}", part, size));
      sum += part;
    }
    if (static_cast<std::int64_t>(sizes->size()) != parts || sum != size)
      ctx.fail(fmt::format("parts of ({}) do not cut a dimension of {} into {} outputs", fmt::join(*sizes, ", "), size,
                           parts));
    return *sizes;
  }
  if (ctx.attributes().integer("num_outputs", parts) != parts)
    ctx.fail(fmt::format("num_outputs is {}, but the layer has {} outputs", ctx.attributes().integer("num_outputs", 0),
                         parts));
  if (ctx.opset() < 18 && size % parts != 0)
    ctx.fail(fmt::format("a dimension of {} cannot be cut into {} equal parts", size, parts));
  const std::int64_t part = (size + parts - 1) / parts;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(parts));
  for (std::int64_t& s : sizes) {
    s = std::min(part, size);
    size -= s;
  }
  return sizes;
}

void infer_split(InferContext& ctx) {
  for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_type(i, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", 0), ctx.rank(0)));
  const std::vector<std::int64_t> sizes = part_sizes(ctx, shape[axis]);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    Shape part = shape;
    part[axis] = sizes[static_cast<std::size_t>(i)];
    ctx.set_shape(i, std::move(part));
  }
}

/// Where each output begins along the axis. Outputs that nobody wants have no tensor, so the sizes are found anew.
template <typename Context>
std::vector<std::int64_t> part_begins(const Context& ctx, std::int64_t size) {
  const std::int64_t parts = ctx.num_outputs(), equal = (size + parts - 1) / parts;
  const auto sizes = attribute_or_input(ctx, "split", 1);
  std::vector<std::int64_t> begins(static_cast<std::size_t>(parts), 0);
  for (std::size_t i = 1; i < begins.size(); ++i)
    begins[i] = std::min(size, begins[i - 1] + (sizes ? (*sizes)[i - 1] : equal));
  return begins;
}

void run_split(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", 0), in.rank()));
  const std::int64_t outer = product(in.shape(), 0, axis), inner = product(in.shape(), axis, in.shape().size());
  const std::int64_t row = product(in.shape(), axis + 1, in.shape().size());
  const std::vector<std::int64_t> begins = part_begins(ctx, in.shape()[axis]);
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    if (!ctx.has_output(i)) continue;
    Tensor& out = ctx.output(i);
    const std::int64_t width = out.shape()[axis] * row;
    const std::array from{inner, std::int64_t{1}};
    copy_strided(in.type(), element(in, begins[static_cast<std::size_t>(i)] * row), from, out.raw(), {outer, width});
  }
}

void adjoint_split(AdjointContext& ctx) {
  const Shape& shape = ctx.input_shape(0);
  const auto axis = static_cast<std::size_t>(
      normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(shape.size())));
  const std::vector<std::int64_t> begins = part_begins(ctx, shape[axis]);
  std::vector<Value> parts;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    Shape part = shape;
    part[axis] = (i + 1 < begins.size() ? begins[i + 1] : shape[axis]) - begins[i];
    const TensorId arrived = ctx.gradient(static_cast<int>(i));
    parts.push_back(arrived != kNone ? Value{&ctx, arrived} : zeros(ctx, part));
  }
  ctx.set(0, concat(ctx, parts, static_cast<std::int64_t>(axis)).id);
}

}  // namespace

OpDef split() {
  return {.name = "Split",
          .inputs = {1, 2},
          .outputs = {1, kAnyNumber},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .moves_values = true,
          .infer = infer_split,
          .run = run_split,
          .adjoint = adjoint_split};
}

}  // namespace ulpscope::ops
