// MatMulInteger, ai.onnx 10: a product of 8-bit matrices with int32 sums.
#include "ops/contraction/matrix_product.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {
namespace {

void infer_matmul_integer(InferContext& ctx) {
  ctx.set_type(0, DataType::kInt32);
  ctx.set_shape(0, matrix_product(ctx, ctx.shape(0), ctx.shape(1)).output());
}

void run_matmul_integer(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(1);
  const MatrixProduct d = matrix_product(ctx, a.shape(), b.shape());
  // a has a zero point per row, b one per column, or one for all.
  const auto x = centered(ctx, a, zero_points(ctx, 2), a.rank() - 2);
  const auto y = centered(ctx, b, zero_points(ctx, 3), b.rank() - 1);
  run_matrix_product(d, x.data(), y.data(), ctx.output(0).data<std::int32_t>());
}

}  // namespace

OpDef matmul_integer() {
  return {.name = "MatMulInteger",
          .since_version = 10,
          .inputs = {2, 4},
          .types = {kBytes},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kContraction,
          .weights = 0b1100,
          .yields_quantized = true,
          .infer = infer_matmul_integer,
          .run = run_matmul_integer,
          .multiply_adds = multiply_adds_of_matmul};
}

}  // namespace ulpscope::ops
