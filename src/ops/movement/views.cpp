// Operators that give the elements another shape and leave them as they are.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

Shape target_shape(const InferContext& ctx) {
  const Shape& shape = ctx.shape(0);
  Shape target = ctx.integers(1);
  const bool zero_is_zero = ctx.attributes().integer("allowzero", 0) != 0;
  const Shape wanted = target;
  std::optional<std::size_t> open;
  std::int64_t known = 1;
  bool has_zero = false;
  for (std::size_t d = 0; d < target.size(); ++d) {
    if (target[d] == 0 && !zero_is_zero) {
      if (d >= shape.size())
        ctx.fail(fmt::format("dimension {} of the new shape {} copies one that the input of shape {} does not have", d,
                             to_string(wanted), to_string(shape)));
      target[d] = shape[d];
    }
    if (target[d] == -1) {
      if (open) ctx.fail(fmt::format("the new shape {} leaves more than one dimension open", to_string(wanted)));
      open = d;
      continue;
    }
    if (target[d] < 0) ctx.fail(fmt::format("the new shape {} has a negative dimension", to_string(wanted)));
    has_zero |= target[d] == 0;
    if (__builtin_mul_overflow(known, target[d], &known))
      ctx.fail(fmt::format("the new shape {} is too large", to_string(wanted)));
  }
  const std::int64_t count = num_elements(shape);
  if (open) {
    if (zero_is_zero && has_zero)
      ctx.fail(fmt::format("the new shape {} has both 0 and -1, which allowzero forbids", to_string(wanted)));
    if (known == 0) {
      if (count != 0)
        ctx.fail(fmt::format("cannot reshape {} elements of {} to {}", count, to_string(shape), to_string(wanted)));
      target[*open] = 0;
      return target;
    }
    target[*open] = count / known;
    known *= target[*open];
  }
  if (known != count)
    ctx.fail(fmt::format("cannot reshape {} of {} elements to {}", to_string(shape), count, to_string(wanted)));
  return target;
}

void infer_reshape(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, target_shape(ctx));
}

void infer_flatten(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const std::int64_t rank = ctx.rank(0);
  std::int64_t axis = ctx.attributes().integer("axis", 1);
  if (axis < -rank || axis > rank) ctx.fail(fmt::format("axis {} is outside of [{}, {}]", axis, -rank, rank));
  if (axis < 0) axis += rank;
  ctx.set_shape(0, {product(shape, 0, static_cast<std::size_t>(axis)),
                    product(shape, static_cast<std::size_t>(axis), shape.size())});
}

void infer_squeeze(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  std::vector<bool> dropped(shape.size(), false);
  if (const auto axes = attribute_or_input(ctx, "axes", 1)) {
    for (std::int64_t axis : normalize_axes(ctx, *axes, ctx.rank(0))) {
      const std::size_t d = static_cast<std::size_t>(axis);
      if (shape[d] != 1) ctx.fail(fmt::format("cannot drop axis {} of {}: its size is not 1", axis, to_string(shape)));
      dropped[d] = true;
    }
  } else {
    for (std::size_t d = 0; d < shape.size(); ++d) dropped[d] = shape[d] == 1;
  }
  Shape result;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (!dropped[d]) result.push_back(shape[d]);
  ctx.set_shape(0, std::move(result));
}

void infer_unsqueeze(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  const auto given = attribute_or_input(ctx, "axes", 1);
  if (!given) ctx.fail("axes are missing");
  const std::size_t rank = shape.size() + given->size();
  std::vector<bool> inserted(rank, false);
  for (std::int64_t axis : normalize_axes(ctx, *given, static_cast<std::int64_t>(rank)))
    inserted[static_cast<std::size_t>(axis)] = true;
  Shape result(rank, 1);
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d)
    if (!inserted[d]) result[d] = shape[next++];
  ctx.set_shape(0, std::move(result));
}

}  // namespace

OpTable views() {
  return {
      // Reshape, ai.onnx 5, 13, 14, 19, 21, 23, 24, 25: the same elements under another shape.
      {.name = "Reshape",
       .inputs = {2, 2},
       .types = {kEverything, kIndices},
       .precision = PrecisionRule::kMovement,
       .kind = OpKind::kMovement,
       .weights = 0b10,
       .moves_values = true,
       .views = true,
       .infer = infer_reshape,
       .run = run_copy,
       .adjoint = view_adjoint},
      // Flatten, ai.onnx 1, 9, 11, 13, 21, 23, 24, 25: to a matrix, split at an axis.
      {.name = "Flatten",
       .types = {kEverything},
       .precision = PrecisionRule::kMovement,
       .kind = OpKind::kMovement,
       .moves_values = true,
       .views = true,
       .infer = infer_flatten,
       .run = run_copy,
       .adjoint = view_adjoint},
      // Squeeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): drops dimensions of size 1.
      {.name = "Squeeze",
       .inputs = {1, 2},
       .types = {kEverything, kIndices},
       .precision = PrecisionRule::kMovement,
       .kind = OpKind::kMovement,
       .weights = 0b10,
       .moves_values = true,
       .views = true,
       .infer = infer_squeeze,
       .run = run_copy,
       .adjoint = view_adjoint},
      // Unsqueeze, ai.onnx 1, 11 (axes: attribute), 13, 21, 23, 24, 25 (axes: input): inserts dimensions of size 1.
      {.name = "Unsqueeze",
       .inputs = {1, 2},
       .types = {kEverything, kIndices},
       .precision = PrecisionRule::kMovement,
       .kind = OpKind::kMovement,
       .weights = 0b10,
       .moves_values = true,
       .views = true,
       .infer = infer_unsqueeze,
       .run = run_copy,
       .adjoint = view_adjoint},
      // Identity, ai.onnx 1, 13, 14, 16, 19, 21, 23, 24, 25: a copy (tensors only).
      {.name = "Identity",
       .types = {kEverything},
       .precision = PrecisionRule::kMovement,
       .kind = OpKind::kMovement,
       .function = Function::kIdentity,
       .moves_values = true,
       .views = true,
       .infer = infer_same_as_first,
       .run = run_copy,
       .adjoint = view_adjoint},
  };
}

}  // namespace ulpscope::ops
