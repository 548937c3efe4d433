// TopK, ai.onnx 1 (k: attribute), 10 (k: input), 11 (largest, sorted), 24: the k largest or smallest elements along an
// axis and their indices. Always sorted; of equal elements the one with the lower index comes first; NaN is the
// largest.
#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "ops/adjoint_values.h"
#include "ops/indexing/sort_keys.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

void infer_top_k(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  ctx.set_type(1, DataType::kInt64);
  Shape shape = ctx.shape(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", -1), ctx.rank(0)));
  const std::int64_t k = ctx.has_input(1) ? single_integer(ctx, 1) : ctx.attributes().required_integer("k");
  if (k < 0 || k > shape[axis])
    ctx.fail(fmt::format("cannot take {} of the {} elements along axis {}", k, shape[axis], axis));
  shape[axis] = k;
  ctx.set_shape(0, shape);
  ctx.set_shape(1, std::move(shape));
}

void run_top_k(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  const std::size_t axis =
      static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", -1), in.rank()));
  const std::int64_t k = ctx.has_input(1) ? single_integer(ctx, 1) : ctx.attributes().required_integer("k");
  const std::uint64_t flip = ctx.attributes().integer("largest", 1) != 0 ? ~std::uint64_t{0} : 0;
  const std::int64_t size = in.shape()[axis], inner = product(in.shape(), axis + 1, in.shape().size());
  const std::int64_t lines = product(in.shape(), 0, axis) * inner;
  const std::size_t bytes = size_of(in.type());
  Tensor* values = ctx.has_output(0) ? &ctx.output(0) : nullptr;
  std::int64_t* indices = ctx.has_output(1) ? ctx.output(1).data<std::int64_t>() : nullptr;
  parallel_for(lines, std::max<std::int64_t>(1, (1 << 12) / std::max<std::int64_t>(1, size)),
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<std::uint64_t> keys(static_cast<std::size_t>(size));
                 std::vector<std::pair<std::uint64_t, std::int64_t>> order(static_cast<std::size_t>(size));
                 for (std::int64_t line = begin; line < end; ++line) {
                   const std::int64_t from = line / inner * size * inner + line % inner;
                   const std::int64_t to = line / inner * k * inner + line % inner;
                   sort_keys(in, from, inner, size, keys.data());
                   for (std::size_t i = 0; i < order.size(); ++i) order[i] = {keys[i] ^ flip, i};
                   // Selecting first is linear in `size`; a heap of k is not when k is large.
                   if (k < size) std::nth_element(order.begin(), order.begin() + k, order.end());
                   std::sort(order.begin(), order.begin() + k);
                   for (std::int64_t i = 0; i < k; ++i) {
                     const std::int64_t index = order[static_cast<std::size_t>(i)].second;
                     if (values != nullptr)
                       std::memcpy(element(*values, to + i * inner), element(in, from + index * inner), bytes);
                     if (indices != nullptr) indices[to + i * inner] = index;
                   }
                 }
               });
}

void adjoint_top_k(AdjointContext& ctx) {
  if (ctx.gradient(0) == kNone) return;
  const std::int64_t axis =
      normalize_axis(ctx, ctx.attributes().integer("axis", -1), static_cast<std::int64_t>(ctx.input_shape(0).size()));
  const std::vector<TensorId> again = ctx.add_multiple(
      "TopK", std::array{ctx.input(0), ctx.integers({ctx.output_shape(0)[static_cast<std::size_t>(axis)]})}, 2,
      {{"axis", axis}, {"largest", ctx.attributes().integer("largest", 1)}});
  ctx.set(0, ctx.add("ScatterElements", {zeros(ctx, ctx.input_shape(0)).id, again[1], ctx.gradient(0)},
                     {{"axis", axis}, {"reduction", std::string("add")}}));
}

}  // namespace

OpDef top_k() {
  return {.name = "TopK",
          .inputs = {1, 2},
          .outputs = {1, 2},
          .types = {kNumbers, kIndices},
          .precision = PrecisionRule::kMovement,
          .weights = 0b10,
          .infer = infer_top_k,
          .run = run_top_k,
          .adjoint = adjoint_top_k};
}

}  // namespace ulpscope::ops
