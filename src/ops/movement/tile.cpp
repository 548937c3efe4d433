// Tile, ai.onnx 6, 13: repeats a tensor along each dimension.
#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_tile(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  Shape shape = ctx.shape(0);
  const std::vector<std::int64_t> repeats = ctx.integers(1);
  if (repeats.size() != shape.size())
    ctx.fail(fmt::format("{} repeats for an input of rank {}", repeats.size(), shape.size()));
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (repeats[d] < 0) ctx.fail(fmt::format("cannot repeat axis {} {} times", d, repeats[d]));
    if (__builtin_mul_overflow(shape[d], repeats[d], &shape[d]))
      ctx.fail(fmt::format("axis {} repeated {} times is too large", d, repeats[d]));
  }
  ctx.set_shape(0, std::move(shape));
}

void run_tile(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  Tensor& out = ctx.output(0);
  if (out.size() == 0) return;
  // Every dimension becomes two: the repetition, along which the input stands still, and the dimension itself.
  const std::vector<std::int64_t> dense = strides_of(in.shape());
  Shape shape;
  std::vector<std::int64_t> strides;
  for (std::size_t d = 0; d < dense.size(); ++d) {
    shape.insert(shape.end(), {out.shape()[d] / in.shape()[d], in.shape()[d]});
    strides.insert(strides.end(), {0, dense[d]});
  }
  copy_strided(in.type(), in.raw(), strides, out.raw(), shape);
}

void adjoint_tile(AdjointContext& ctx) {
  const Shape &in = ctx.input_shape(0), &out = ctx.output_shape(0);
  if (num_elements(in) == 0) return;
  Shape split;
  std::vector<std::int64_t> axes;
  for (std::size_t d = 0; d < in.size(); ++d) {
    axes.push_back(static_cast<std::int64_t>(2 * d));
    split.insert(split.end(), {out[d] / in[d], in[d]});
  }
  ctx.set(0, reshape(sum(reshape(gradient(ctx), split), axes), in).id);
}

}  // namespace

OpDef tile() {
  return {.name = "Tile",
          .since_version = 6,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .weights = 0b10,
          .moves_values = true,
          .infer = infer_tile,
          .run = run_tile,
          .adjoint = adjoint_tile};
}

}  // namespace ulpscope::ops
