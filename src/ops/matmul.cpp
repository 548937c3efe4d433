// MatMul, ai.onnx 1, 9, 13: numpy.matmul.
#include "ops/matrix_product.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

void infer(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  require_type_of_first(ctx, {1});
  ctx.set_shape(0, matrix_product(ctx, ctx.shape(0), ctx.shape(1)).output());
}

void run(KernelContext& ctx) {
  const MatrixProduct d = matrix_product(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  with_type(NumericTypes{}, ctx, ctx.input(0).type(), [&](auto tag) {
    using T = decltype(tag);
    run_matrix_product(d, ctx.input(0).data<T>(), ctx.input(1).data<T>(), ctx.output(0).data<T>());
  });
}

}  // namespace

OpDef matmul() {
  return {.name = "MatMul", .inputs = {2, 2}, .kind = OpKind::kContraction, .infer = infer, .run = run};
}

}  // namespace ulpscope::ops
