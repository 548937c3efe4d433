// GatherElements, ai.onnx 11, 13: one element per index along an axis (NumPy's take_along_axis).
#include "ops/adjoint_values.h"
#include "ops/indexing/element_indices.h"

namespace ulpscope::ops {
namespace {

void infer_gather_elements(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_shape(0, ctx.shape(1));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), indexed_axis(ctx));
}

void run_gather_elements(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  void* out = ctx.output(0).raw();
  const std::vector<std::int64_t> indices = ctx.integers(1);
  with_word(in.type(), [&](auto word) {
    using Word = decltype(word);
    for_each_element_index(
        ctx, in.shape(), ctx.input(1), indices, indexed_axis(ctx),
        [&](std::int64_t i, std::int64_t from) { store_word(out, i, load_word<Word>(in.raw(), from)); });
  });
}

void adjoint_gather_elements(AdjointContext& ctx) {
  if (!ctx.wants(0)) return;
  ctx.set(0, ctx.add("ScatterElements", {zeros(ctx, ctx.input_shape(0)).id, ctx.input(1), ctx.gradient(0)},
                     {{"axis", indexed_axis(ctx)}, {"reduction", std::string("add")}}));
}

}  // namespace

OpDef gather_elements() {
  return {.name = "GatherElements",
          .since_version = 11,
          .inputs = {2, 2},
          .types = {kEverything, kIndices},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b10,
          .moves_values = true,
          .infer = infer_gather_elements,
          .run = run_gather_elements,
          .adjoint = adjoint_gather_elements};
}

}  // namespace ulpscope::ops
