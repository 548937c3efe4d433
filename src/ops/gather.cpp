// Gather, ai.onnx 1, 11, 13: slices of an axis, chosen by indices; negative ones count from the end.
#include <algorithm>

#include "core/parallel.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  const auto axis = normalize_axis(ctx, ctx.attributes().integer("axis", 0), ctx.rank(0));
  Shape result(data.begin(), data.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  ctx.set_shape(0, std::move(result));
}

void run(KernelContext& ctx) {
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

}  // namespace

OpDef gather() {
  return {.name = "Gather",
          .inputs = {2, 2},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer,
          .run = run};
}

}  // namespace ulpscope::ops
