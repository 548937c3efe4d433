// ScatterND, ai.onnx 11, 13, 16, 18 (reductions): writes or combines the slices that index tuples choose.
#include "ops/adjoint_values.h"
#include "ops/indexing/scatter_reduction.h"

namespace ulpscope::ops {
namespace {

void infer_scatter_nd(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  check_reduction(ctx);
  ctx.set_shape(0, ctx.shape(0));
  const Shape &data = ctx.shape(0), &indices = ctx.shape(1);
  if (indices.empty() || indices.back() > static_cast<std::int64_t>(data.size()))
    ctx.fail(fmt::format("indices of shape {} do not fit data of shape {}", to_string(indices), to_string(data)));
  Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + indices.back(), data.end());
  if (ctx.shape(2) != expected)
    ctx.fail(fmt::format("expected updates of shape {}, got {}", to_string(expected), to_string(ctx.shape(2))));
}

/// Calls function(offset of the slice in the data) for each index tuple.
template <typename Function>
void for_each_slice(const KernelContext& ctx, const Shape& data, Function&& function) {
  const std::vector<std::int64_t> values = ctx.integers(1), strides = strides_of(data);
  const Shape& indices = ctx.input(1).shape();
  const std::size_t depth = static_cast<std::size_t>(indices.back());
  const std::int64_t tuples = product(indices, 0, indices.size() - 1);
  std::size_t next = 0;
  for (std::int64_t t = 0; t < tuples; ++t) {
    std::int64_t to = 0;
    for (std::size_t k = 0; k < depth; ++k) to += normalize_index(ctx, values[next++], data[k]) * strides[k];
    function(t, to);
  }
}

void run_scatter_nd(KernelContext& ctx) {
  run_copy(ctx);
  Tensor& out = ctx.output(0);
  const Tensor& updates = ctx.input(2);
  const Shape& data = out.shape();
  const std::int64_t slice = product(data, static_cast<std::size_t>(ctx.input(1).shape().back()), data.size());
  const Combine combine = find_combine(ctx, out.type());
  for_each_slice(ctx, data, [&](std::int64_t t, std::int64_t to) {
    combine(element(out, to), element(updates, t * slice), slice);
  });
}

void adjoint_scatter_nd(AdjointContext& ctx) {
  const std::string reduction = ctx.attributes().text("reduction", "none");
  if (reduction != "none" && reduction != "add") {
    ctx.leave_out(0);
    return ctx.leave_out(2);
  }
  const Value g = gradient(ctx);
  if (ctx.wants(0))
    ctx.set(0,
            reduction == "add" ? g.id : ctx.add("ScatterND", {g.id, ctx.input(1), zeros(ctx, ctx.input_shape(2)).id}));
  if (ctx.wants(2)) ctx.set(2, ctx.add("GatherND", {g.id, ctx.input(1)}));
}

}  // namespace

OpDef scatter_nd() {
  return {.name = "ScatterND",
          .since_version = 11,
          .inputs = {3, 3},
          .types = {kEverything, kIndices, kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .selects = 0b10,
          .infer = infer_scatter_nd,
          .run = run_scatter_nd,
          .adjoint = adjoint_scatter_nd};
}

}  // namespace ulpscope::ops
