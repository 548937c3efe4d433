// OneHot, ai.onnx 9, 11 (negative indices count from the end), 28: rows that are off_value but for one element. An
// index out of range gives a row that is off everywhere.
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::int64_t new_axis(const Context& ctx) {
  const std::int64_t rank = static_cast<std::int64_t>(shape_of(ctx, 0).size());
  return normalize_axis(ctx, ctx.attributes().integer("axis", -1), rank + 1);
}

void infer_one_hot(InferContext& ctx) {
  ctx.set_type(0, ctx.type(2));
  Shape shape = ctx.shape(0);
  const std::int64_t axis = new_axis(ctx);
  if (num_elements(ctx.shape(2)) != 2)
    ctx.fail(fmt::format("expected two values (off, on), got shape {}", to_string(ctx.shape(2))));
  const Tensor& given = ctx.value(1);
  if (given.size() != 1) ctx.fail(fmt::format("expected one element as depth, got {}", given.size()));
  const std::int64_t depth = given.cast(DataType::kInt64).data<std::int64_t>()[0];
  if (depth < 0) ctx.fail(fmt::format("expected a depth that is not negative, got {}", depth));
  shape.insert(shape.begin() + axis, depth);
  ctx.set_shape(0, std::move(shape));
}

void run_one_hot(KernelContext& ctx) {
  Tensor& out = ctx.output(0);
  const Tensor& values = ctx.input(2);
  fill_elements(out.type(), out.raw(), out.size(), values.raw());
  const std::size_t axis = static_cast<std::size_t>(new_axis(ctx));
  const std::int64_t depth = out.shape()[axis], inner = product(out.shape(), axis + 1, out.shape().size());
  const Tensor indices = ctx.input(0).cast(DataType::kInt64);
  const std::size_t bytes = size_of(out.type());
  const std::int64_t* index = indices.data<std::int64_t>();
  for (std::int64_t i = 0; i < indices.size(); ++i) {
    const std::int64_t at = index[i] < 0 ? index[i] + depth : index[i];
    if (at < 0 || at >= depth) continue;
    std::memcpy(element(out, (i / inner * depth + at) * inner + i % inner), element(values, 1), bytes);
  }
}

}  // namespace

OpDef one_hot() {
  return {.name = "OneHot",
          .since_version = 9,
          .inputs = {3, 3},
          .types = {kNumbers, kNumbers, kEverything},
          .precision = PrecisionRule::kFixed,
          .weights = 0b10,
          .selects = 0b1,
          .infer = infer_one_hot,
          .run = run_one_hot};
}

}  // namespace ulpscope::ops
