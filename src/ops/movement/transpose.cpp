// Transpose, ai.onnx 1, 13, 21, 23, 24, 25: permutes dimensions.
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/movement.h"

namespace ulpscope::ops {
namespace {

template <typename Context>
std::vector<std::int64_t> permutation_of(const Context& ctx, std::int64_t rank) {
  if (!ctx.attributes().has("perm")) {
    std::vector<std::int64_t> reversed(static_cast<std::size_t>(rank));
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    return reversed;
  }
  std::vector<std::int64_t> perm = ctx.attributes().required_integers("perm");
  if (static_cast<std::int64_t>(perm.size()) != rank)
    ctx.fail(fmt::format("perm ({}) has {} entries for an input of rank {}", fmt::join(perm, ", "), perm.size(), rank));
  return normalize_axes(ctx, std::move(perm), rank);
}

void infer_transpose(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  const Shape& shape = ctx.shape(0);
  Shape result;
  for (std::int64_t d : permutation_of(ctx, ctx.rank(0))) result.push_back(shape[static_cast<std::size_t>(d)]);
  ctx.set_shape(0, std::move(result));
}

void run_transpose(KernelContext& ctx) {
  const Tensor& in = ctx.input(0);
  copy_permuted(in, in.shape(), permutation_of(ctx, in.rank()), ctx.output(0));
}

void adjoint_transpose(AdjointContext& ctx) {
  const auto rank = static_cast<std::int64_t>(ctx.input_shape(0).size());
  const std::vector<std::int64_t> perm = permutation_of(ctx, rank);
  std::vector<std::int64_t> inverse(perm.size());
  for (std::size_t d = 0; d < perm.size(); ++d)
    inverse[static_cast<std::size_t>(perm[d])] = static_cast<std::int64_t>(d);
  ctx.set(0, transpose(gradient(ctx), std::move(inverse)).id);
}

}  // namespace

OpDef transpose() {
  return {.name = "Transpose",
          .types = {kEverything},
          .precision = PrecisionRule::kMovement,
          .kind = OpKind::kMovement,
          .function = Function::kTranspose,
          .moves_values = true,
          .infer = infer_transpose,
          .run = run_transpose,
          .adjoint = adjoint_transpose};
}

}  // namespace ulpscope::ops
