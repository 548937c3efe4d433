// MatMul with transposed operands and a factor, as ONNX Runtime's optimizer writes it.
#include <algorithm>
#include <numeric>

#include "ops/adjoint_values.h"
#include "ops/common.h"
#include "ops/contraction/accumulated.h"
#include "ops/elementwise.h"
#include "ops/movement.h"
#include "ops/multiply_adds.h"

namespace ulpscope::ops {
namespace {

using Permutation = std::vector<std::int64_t>;

/// What brings operand 0 or 1 to the form that MatMul reads. `transBatchX`: dimension 0 comes behind the batch;
/// `transX`: then the last two change places. Vectors stay as they are.
Permutation order_of(const Attributes& attributes, int operand, std::size_t rank) {
  Permutation perm(rank);
  std::iota(perm.begin(), perm.end(), 0);
  if (rank < 2) return perm;
  if (attributes.integer(operand == 0 ? "transBatchA" : "transBatchB", 0) != 0)
    std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (attributes.integer(operand == 0 ? "transA" : "transB", 0) != 0) std::swap(perm[rank - 1], perm[rank - 2]);
  return perm;
}

Shape permuted(const Shape& shape, const Permutation& perm) {
  Shape result;
  for (const std::int64_t d : perm) result.push_back(shape[static_cast<std::size_t>(d)]);
  return result;
}

template <typename Context>
MatrixProduct product_of(const Context& ctx, const Shape& a, const Shape& b) {
  return matrix_product(ctx, permuted(a, order_of(ctx.attributes(), 0, a.size())),
                        permuted(b, order_of(ctx.attributes(), 1, b.size())));
}

void infer_fused_matmul(InferContext& ctx) {
  require_type_of_first(ctx, {1});
  ctx.set_shape(0, product_of(ctx, ctx.shape(0), ctx.shape(1)).output());
}

Tensor in_order(const KernelContext& ctx, int operand) {
  const Tensor& in = ctx.input(operand);
  const Permutation perm = order_of(ctx.attributes(), operand, in.shape().size());
  if (std::ranges::is_sorted(perm)) return in;
  Tensor out(in.type(), permuted(in.shape(), perm));
  copy_permuted(in, in.shape(), perm, out);
  return out;
}

void run_fused_matmul(KernelContext& ctx) {
  const MatrixProduct d = product_of(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  const Tensor a = in_order(ctx, 0), b = in_order(ctx, 1);
  const float alpha = ctx.attributes().real("alpha", 1);
  with_type(FloatTypes{}, ctx, a.type(), [&]<typename T>(T) {
    T* out = ctx.output(0).data<T>();
    multiply_matrices(ctx, d, a.data<T>(), b.data<T>(), out);
    if (alpha != 1)
      for (std::int64_t i = 0; i < ctx.output(0).size(); ++i) out[i] = static_cast<T>(alpha * out[i]);
  });
}

void adjoint_fused_matmul(AdjointContext& ctx) {
  const std::array perms{order_of(ctx.attributes(), 0, ctx.input_shape(0).size()),
                         order_of(ctx.attributes(), 1, ctx.input_shape(1).size())};
  const MatrixProduct d = product_of(ctx, ctx.input_shape(0), ctx.input_shape(1));
  Shape rows = d.batch;
  rows.insert(rows.end(), {d.m, d.n});
  const double alpha = static_cast<double>(ctx.attributes().real("alpha", 1));
  const Value g = reshape(gradient(ctx) * alpha, rows);
  const auto operand = [&](int i) { return transpose(input(ctx, i), perms[static_cast<std::size_t>(i)]); };
  const auto set_gradient = [&](int i, Value value, const Shape& matrices) {
    const Permutation& perm = perms[static_cast<std::size_t>(i)];
    const Value ordered = reshape(sum_to(value, matrices), permuted(ctx.input_shape(i), perm));
    ctx.set(i, transpose(ordered, inverse_permutation(perm)).id);
  };
  if (ctx.wants(0)) set_gradient(0, matmul(g, transposed(reshape(operand(1), d.b))), d.a);
  if (ctx.wants(1)) set_gradient(1, matmul(transposed(reshape(operand(0), d.a)), g), d.b);
}

}  // namespace

OpTable fused_matmul() {
  return {
      // FusedMatMul, com.microsoft 1: alpha * A' * B', where A' and B' may be transposed, batches included.
      make_op({.name = "FusedMatMul",
               .domain = "com.microsoft",
               .inputs = {2, 2},
               .types = {set_of(FloatTypes{})},
               .kind = OpKind::kContraction,
               .multiply_adds = multiply_adds_of_fused_matmul},
              infer_fused_matmul, run_fused_matmul, adjoint_fused_matmul),
  };
}

}  // namespace ulpscope::ops
