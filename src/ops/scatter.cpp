// Scatter, ai.onnx 9, 11: the former name of ScatterElements.
#include "ops/adjoint_values.h"
#include "ops/scatter_by_element.h"

namespace ulpscope::ops {

namespace {

void adjoint(AdjointContext& ctx) {
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

}  // namespace

OpDef scatter() {
  return {.name = "Scatter",
          .since_version = 9,
          .inputs = {3, 3},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer_scatter_elements,
          .run = run_scatter_elements,
          .adjoint = adjoint};
}

}  // namespace ulpscope::ops
