// Reshape, ai.onnx 5, 13, 14, 19, 21, 23, 24, 25: the same elements under another shape.
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

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, target_shape(ctx));
}

}  // namespace

OpDef reshape() {
  return {.name = "Reshape",
          .inputs = {2, 2},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .infer = infer,
          .run = run_copy,
          .adjoint = view_adjoint};
}

}  // namespace ulpscope::ops
