// ScatterElements, ai.onnx 11, 13, 16, 18 (reductions): writes or combines one element per index along an axis.
#include "ops/adjoint_values.h"
#include "ops/indexing/element_indices.h"
#include "ops/indexing/scatter_reduction.h"

namespace ulpscope::ops {
namespace {

void infer_scatter_elements(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  check_reduction(ctx);
  ctx.set_shape(0, ctx.shape(0));
  if (ctx.shape(1) != ctx.shape(2))
    ctx.fail(fmt::format("indices of shape {} and updates of shape {} differ", to_string(ctx.shape(1)),
                         to_string(ctx.shape(2))));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), indexed_axis(ctx));
}

/// A copy of input 0 in which the elements that input 1 points at are combined with those of input 2, in order.
void run_scatter_elements(KernelContext& ctx) {
  run_copy(ctx);
  const Tensor &indices = ctx.input(1), &updates = ctx.input(2);
  Tensor& out = ctx.output(0);
  const std::vector<std::int64_t> values = ctx.integers(1);
  const std::int64_t axis = indexed_axis(ctx);
  const Combine combine = find_combine(ctx, out.type());
  for_each_element_index(ctx, out.shape(), indices, values, axis,
                         [&](std::int64_t i, std::int64_t to) { combine(element(out, to), element(updates, i), 1); });
}

/// None for the reductions mul, max and min.
void adjoint_scatter_elements(AdjointContext& ctx) {
  const std::string reduction = ctx.attributes().text("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    ctx.leave_out(0);
    return ctx.leave_out(2);
  }
  const Value g = gradient(ctx);
  if (ctx.wants(0))
    ctx.set(0, reduction == "add" ? g.id
                                  : ctx.add("ScatterElements", {g.id, ctx.input(1), zeros(ctx, ctx.input_shape(2)).id},
                                            {{"axis", ctx.attributes().integer("axis", 0)}}));
  if (ctx.wants(2))
    ctx.set(2, ctx.add("GatherElements", {g.id, ctx.input(1)}, {{"axis", ctx.attributes().integer("axis", 0)}}));
}

OpDef scatter(std::string_view name, int since_version) {
  return {.name = name,
          .since_version = since_version,
          .inputs = {3, 3},
          .types = {kEverything, kIndices, kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b10,
          .infer = infer_scatter_elements,
          .run = run_scatter_elements,
          .adjoint = adjoint_scatter_elements};
}

}  // namespace

OpTable scatter_elements() {
  return {
      scatter("ScatterElements", 11),
      // Scatter, ai.onnx 9, 11: its former name.
      scatter("Scatter", 9),
  };
}

}  // namespace ulpscope::ops
