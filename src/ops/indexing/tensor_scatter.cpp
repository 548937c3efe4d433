// TensorScatter, ai.onnx 24: writes new entries into a key or value cache, at a place per sample.
#include <string>

#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::size_t written_axis(const Context& ctx) {
  const std::int64_t axis =
      normalize_axis(ctx, ctx.attributes().integer("axis", -2), static_cast<std::int64_t>(shape_of(ctx, 0).size()));
  if (axis == 0) ctx.fail("axis 0 is the batch and cannot be written along");
  return static_cast<std::size_t>(axis);
}

void infer_tensor_scatter(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const std::string mode = ctx.attributes().text("mode", "linear");
  if (mode != "linear" && mode != "circular") ctx.fail(fmt::format("expected mode linear or circular, got '{}'", mode));
  const Shape &cache = ctx.shape(0), &update = ctx.shape(1);
  ctx.set_shape(0, cache);
  const std::size_t axis = written_axis(ctx);
  bool fits = cache.size() == update.size();
  for (std::size_t d = 0; fits && d < cache.size(); ++d)
    fits = d == axis ? update[d] <= cache[d] : update[d] == cache[d];
  if (!fits)
    ctx.fail(fmt::format("an update of shape {} does not fit a cache of shape {} along axis {}", to_string(update),
                         to_string(cache), axis));
  if (ctx.has_input(2) && ctx.shape(2) != Shape{cache[0]})
    ctx.fail(fmt::format("expected write_indices of shape {}, got {}", to_string({cache[0]}), to_string(ctx.shape(2))));
}

void run_tensor_scatter(KernelContext& ctx) {
  run_copy(ctx);
  Tensor& out = ctx.output(0);
  const Tensor& update = ctx.input(1);
  if (update.size() == 0) return;
  const Shape& shape = out.shape();
  const std::size_t axis = written_axis(ctx);
  const std::int64_t capacity = shape[axis], length = update.shape()[axis];
  const bool circular = ctx.attributes().text("mode", "linear") == "circular";
  std::vector<std::int64_t> begins(static_cast<std::size_t>(shape[0]), 0);
  if (ctx.has_input(2)) begins = ctx.integers(2);
  for (std::int64_t& begin : begins) {
    if (begin < 0 || (!circular && begin > capacity - length))
      ctx.fail(fmt::format("{} entries cannot be written at index {} of a cache of {}", length, begin, capacity));
    begin %= capacity;
  }
  const std::int64_t prefixes = product(shape, 1, axis), row = product(shape, axis + 1, shape.size());
  const std::size_t bytes = static_cast<std::size_t>(row) * size_of(out.type());
  for (std::int64_t p = 0; p < shape[0] * prefixes; ++p) {
    const std::int64_t begin = begins[static_cast<std::size_t>(p / prefixes)];
    for (std::int64_t i = 0; i < length; ++i)
      std::memcpy(element(out, (p * capacity + (begin + i) % capacity) * row), element(update, (p * length + i) * row),
                  bytes);
  }
}

}  // namespace

OpDef tensor_scatter() {
  return {.name = "TensorScatter",
          .since_version = 24,
          .inputs = {2, 3},
          .types = {kEverything, kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b100,
          .infer = infer_tensor_scatter,
          .run = run_tensor_scatter};
}

}  // namespace ulpscope::ops
