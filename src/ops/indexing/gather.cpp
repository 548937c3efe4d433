// Gather, ai.onnx 1, 11, 13: slices of an axis, chosen by indices; negative ones count from the end.
#include <algorithm>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_gather(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const auto axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), ctx.rank(0));
  Shape result(data.begin(), data.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  ctx.set_shape(0, std::move(result));
}

void run_gather(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", 0), in.rank()));
  const std::int64_t size = in.shape()[axis];
  std::vector<std::int64_t> indices = ctx.integers(1);
  for (std::int64_t& index : indices) index = normalize_index(ctx, index, size);
  if (out.size() == 0) return;
  const std::int64_t outer = product(in.shape(), 0, axis), inner = product(in.shape(), axis + 1, in.shape().size());
  const std::int64_t count = static_cast<std::int64_t>(indices.size());
  const std::size_t bytes = static_cast<std::size_t>(inner) * size_of(in.type());
  const std::int64_t grain = std::max<std::int64_t>(1, (1 << 17) / static_cast<std::int64_t>(bytes));
  parallel_for(outer * count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t from = (i / count * size + indices[static_cast<std::size_t>(i % count)]) * inner;
      std::memcpy(element(out, i * inner), element(in, from), bytes);
    }
  });
}

void adjoint_gather(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  const Shape &shape = ctx.input_shape(0), &places = ctx.input_shape(1);
  const auto rank = static_cast<std::int64_t>(shape.size()), chosen = static_cast<std::int64_t>(places.size());
  const std::int64_t axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), rank);
  const Value g = gradient(ctx);
  // One place known beforehand: zeros around it.
  if (const Tensor* known = ctx.input_value(1); known != nullptr && known->size() == 1) {
    const auto d = static_cast<std::size_t>(axis);
    const std::int64_t index = normalize_index(ctx, known->cast(DataType::kInt64).data<std::int64_t>()[0], shape[d]);
    std::vector<std::int64_t> front(shape.size(), 0), back(shape.size(), 0);
    Shape one = shape;
    one[d] = 1;
    front[d] = index;
    back[d] = shape[d] - 1 - index;
    return ctx.set(0, pad(reshape(g, one), front, back).id);
  }
  // With the axis in front, rows are added up at their places.
  std::vector<std::int64_t> forwards, backwards;
  for (std::int64_t d = 0; d < chosen; ++d) forwards.push_back(axis + d);
  for (std::int64_t d = 0; d < rank + chosen - 1; ++d)
    if (d < axis || d >= axis + chosen) forwards.push_back(d);
  Shape rows{shape[static_cast<std::size_t>(axis)]};
  for (std::int64_t d = 0; d < rank; ++d) {
    if (d != axis) rows.push_back(shape[static_cast<std::size_t>(d)]);
    backwards.push_back(d == axis ? 0 : d < axis ? d + 1 : d);
  }
  Shape pointers = places;
  pointers.push_back(1);
  const TensorId sums =
      ctx.add("ScatterND", {zeros(ctx, rows).id, ctx.reshape(ctx.input(1), pointers), transpose(g, forwards).id},
              {{"reduction", std::string("add")}});
  ctx.set(0, transpose({&ctx, sums}, backwards).id);
}

}  // namespace

OpDef gather() {
  return {.name = "Gather",
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b10,
          .moves_values = true,
          .infer = infer_gather,
          .run = run_gather,
          .adjoint = adjoint_gather};
}

}  // namespace ulpscope::ops
