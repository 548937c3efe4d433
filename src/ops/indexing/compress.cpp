// Compress, ai.onnx 9, 11, 28: the slices of an axis (or the elements) for which a condition is true.
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_compress(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  if (ctx.attributes().has("axis")) normalize_axis(ctx, ctx.attributes().required_integer("axis"), ctx.rank(0));
}

void run_compress(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const auto condition = ctx.input(1).values<bool>();
  std::int64_t outer = 1, count = in.size(), inner = 1;
  Shape shape{0};
  std::size_t axis = 0;
  if (ctx.attributes().has("axis")) {
    axis = static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().required_integer("axis"), in.rank()));
    shape = in.shape();
    outer = product(shape, 0, axis);
    count = shape[axis];
    inner = product(shape, axis + 1, shape.size());
  }
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < condition.size(); ++i) {
    if (!condition[i]) continue;
    if (static_cast<std::int64_t>(i) >= count) ctx.fail(fmt::format("the condition chooses index {} of {}", i, count));
    kept.push_back(static_cast<std::int64_t>(i));
  }
  shape[axis] = static_cast<std::int64_t>(kept.size());
  Tensor out(in.type(), std::move(shape));
  const std::size_t bytes = static_cast<std::size_t>(inner) * size_of(in.type());
  std::int64_t to = 0;
  for (std::int64_t o = 0; o < outer && bytes != 0; ++o)
    for (std::int64_t index : kept)
      std::memcpy(element(out, inner * to++), element(in, (o * count + index) * inner), bytes);
  ctx.set_output(0, std::move(out));
}

}  // namespace

OpDef compress() {
  return {.name = "Compress",
          .since_version = 9,
          .inputs = {2, 2},
          .types = {kEverything, kBooleans},
          .precision = PrecisionRule::kMovement,
          .selects = 0b10,
          .moves_values = true,
          .infer = infer_compress,
          .run = run_compress};
}

}  // namespace ulpscope::ops
