// ScatterElements, ai.onnx 11, 13, 16, 18 (reductions): writes or combines one element per index along an axis.
#include "ops/adjoint_values.h"
#include "ops/indexing/element_indices.h"
#include "ops/indexing/scatter_by_element.h"
#include "ops/indexing/scatter_reduction.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::int64_t axis_of(const Context& ctx) {
  return normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(shape_of(ctx, 0).size()));
}

}  // namespace

void infer_scatter_elements(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  check_reduction(ctx);
  ctx.set_shape(0, ctx.shape(0));
  if (ctx.shape(1) != ctx.shape(2))
    ctx.fail(fmt::format("indices of shape {} and updates of shape {} differ", to_string(ctx.shape(1)),
                         to_string(ctx.shape(2))));
  check_element_indices(ctx, ctx.shape(0), ctx.shape(1), axis_of(ctx));
}

void run_scatter_elements(KernelContext& ctx) {
  run_copy(ctx);
  const Tensor &indices = ctx.input(1), &updates = ctx.input(2);
  Tensor& out = ctx.output(0);
  const std::vector<std::int64_t> values = ctx.integers(1);
  const std::int64_t axis = axis_of(ctx);
  if (replaces(ctx.attributes())) {
    with_word(out.type(), [&](auto word) {
      using Word = decltype(word);
      for_each_element_index(ctx, out.shape(), indices, values, axis, [&](std::int64_t i, std::int64_t to) {
        store_word(out.raw(), to, load_word<Word>(updates.raw(), i));
      });
    });
    return;
  }
  with_reduction(ctx, out.type(), [&](auto tag, auto combine) {
    using T = decltype(tag);
    T* target = out.data<T>();
    const T* update = updates.data<T>();
    for_each_element_index(ctx, out.shape(), indices, values, axis,
                           [&](std::int64_t i, std::int64_t to) { target[to] = combine(target[to], update[i]); });
  });
}

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

OpDef scatter_elements() {
  return {.name = "ScatterElements",
          .since_version = 11,
          .inputs = {3, 3},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .infer = infer_scatter_elements,
          .run = run_scatter_elements,
          .adjoint = adjoint_scatter_elements};
}

}  // namespace ulpscope::ops
