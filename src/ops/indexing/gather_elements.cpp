// GatherElements, ai.onnx 11, 13: one element per index along an axis (NumPy's take_along_axis).
#include "ops/adjoint_values.h"
#include "ops/indexing/element_indices.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::int64_t axis_of(const Context& ctx) {
  return normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(shape_of(ctx, 0).size()));
}

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, ctx.shape(1));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), axis_of(ctx));
}

void run(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  void* out = ctx.output(0).raw();
  const std::vector<std::int64_t> indices = ctx.integers(1);
  with_word(in.type(), [&](auto word) {
    using Word = decltype(word);
    for_each_element_index(
        ctx, in.shape(), ctx.input(1), indices, axis_of(ctx),
        [&](std::int64_t i, std::int64_t from) { store_word(out, i, load_word<Word>(in.raw(), from)); });
  });
}

void adjoint(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  ctx.set(0, ctx.add("ScatterElements", {zeros(ctx, ctx.input_shape(0)).id, ctx.input(1), ctx.gradient(0)},
                     {{"axis", axis_of(ctx)}, {"reduction", std::string("add")}}));
}

}  // namespace

OpDef gather_elements() {
  return {.name = "GatherElements",
          .since_version = 11,
          .inputs = {2, 2},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer,
          .run = run,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
