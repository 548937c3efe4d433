// MatMul, ai.onnx 1, 9, 13: numpy.matmul.
#include "ops/adjoint_values.h"
#include "ops/contraction/matrix_product.h"
#include "ops/multiply_adds.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

void infer_matmul(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1});
  ctx.set_shape(0, matrix_product(ctx, ctx.shape(0), ctx.shape(1)).output());
}

void run_matmul(KernelContext& ctx) {
  const MatrixProduct d = matrix_product(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  with_type(WideTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    run_matrix_product(d, ctx.input(0).data<T>(), ctx.input(1).data<T>(), ctx.output(0).data<T>());
  });
}

void adjoint_matmul(AdjointContext& ctx) {
  const MatrixProduct d = matrix_product(ctx, ctx.input_shape(0), ctx.input_shape(1));
  Shape rows = d.batch;
  rows.insert(rows.end(), {d.m, d.n});
  const Value g = reshape(gradient(ctx), rows);
  if (ctx.wants(0)) {
    const Value b = reshape(input(ctx, 1), d.b);
    ctx.set(0, reshape(sum_to(matmul(g, transposed(b)), d.a), ctx.input_shape(0)).id);
  }
  if (ctx.wants(1)) {
    const Value a = reshape(input(ctx, 0), d.a);
    // One matrix for all of the batch: the rows of all samples are rows of one product.
    const bool shared = num_elements(d.batch_of(d.b)) == 1 && d.batch_of(d.a) == d.batch;
    const std::int64_t count = shared ? num_elements(d.batch) * d.m : 0;
    const Value product = shared ? matmul(transposed(reshape(a, {count, d.k})), reshape(g, {count, d.n}))
                                 : sum_to(matmul(transposed(a), g), d.b);
    ctx.set(1, reshape(product, ctx.input_shape(1)).id);
  }
}

}  // namespace

OpDef matmul() {
  return {.name = "MatMul",
          .inputs = {2, 2},
          .types = {set_of(WideTypes{})},
          .kind = OpKind::kContraction,
          .function = Function::kMatMul,
          .infer = infer_matmul,
          .run = run_matmul,
          .adjoint = adjoint_matmul,
          .multiply_adds = multiply_adds_of_matmul};
}

}  // namespace ulpscope::ops
