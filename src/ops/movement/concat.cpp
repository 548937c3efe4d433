// Concat, ai.onnx 1, 4, 11, 13: joins tensors along an axis.
#include <array>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_concat(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  for (int i = 1; i < ctx.num_inputs(); ++i)
    if (ctx.type(i) != ctx.type(0) && ctx.type(i) != DataType::kUndefined && ctx.type(0) != DataType::kUndefined)
      ctx.fail(fmt::format("input {} has elements of type {}, input 0 of type {}", i, name_of(ctx.type(i)),
                           name_of(ctx.type(0))));
  Shape result = ctx.shape(0);
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().required_integer("axis"), ctx.rank(0));
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    const Shape& shape = ctx.shape(i);
    bool fits = shape.size() == result.size();
    for (std::size_t d = 0; fits && d < shape.size(); ++d)
      fits = static_cast<std::int64_t>(d) == axis || shape[d] == result[d];
    if (!fits)
      ctx.fail(fmt::format("input {} of shape {} does not fit {} along axis {}", i, to_string(shape),
                           to_string(ctx.shape(0)), axis));
    result[static_cast<std::size_t>(axis)] += shape[static_cast<std::size_t>(axis)];
  }
  ctx.set_shape(0, std::move(result));
}

void run_concat(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().required_integer("axis"), out.rank()));
  const std::int64_t outer = product(out.shape(), 0, axis), inner = product(out.shape(), axis, out.shape().size());
  std::int64_t at = 0;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const Tensor& in = ctx.input(i);
    const std::int64_t width = product(in.shape(), axis, in.shape().size());
    const std::array from{width, std::int64_t{1}}, to{inner, std::int64_t{1}};
    copy_strided(in.type(), in.raw(), from, element(out, at), to, {outer, width});
    at += width;
  }
}

void adjoint_concat(AdjointContext& ctx) {
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().required_integer("axis"),
                                           static_cast<std::int64_t>(ctx.output_shape(0).size()));
  const Value g = gradient(ctx);
  std::int64_t at = 0;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const std::int64_t size = ctx.input_shape(i)[static_cast<std::size_t>(axis)];
    if (ctx.wants(i)) ctx.set(i, slice(g, axis, at, at + size).id);
    at += size;
  }
}

}  // namespace

OpDef concat() {
  return {.name = "Concat",
          .inputs = {1, kAnyNumber},
          .types = {kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .function = Function::kConcat,
          .infer = infer_concat,
          .run = run_concat,
          .adjoint = adjoint_concat};
}

}  // namespace ulpscope::ops
