// QLinearMatMul, ai.onnx 10, 21: a product of 8-bit matrices, quantized again.
#include "ops/contraction/matrix_product.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/quantization.h"
#include "ops/type_rules.h"

namespace ulpscope::ops {
namespace {

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
void infer_qlinear_matmul(InferContext& ctx) {
  ctx.set_type(0, ctx.type(7));
  for (int i : {1, 4, 6}) require_type(ctx, i, DataType::kFloat32);
  ctx.set_shape(0, matrix_product(ctx, ctx.shape(0), ctx.shape(3)).output());
}

/// The scale of one output row or column of a tensor of scales (one for all, or one for each).
float scale_at(const Tensor& scales, std::int64_t index) {
  const float* values = scales.data<float>();
  return values[scales.size() == 1 ? 0 : index % scales.size()];
}

void run_qlinear_matmul(KernelContext& ctx) {
  const Tensor& a = ctx.input(0);
  const Tensor& b = ctx.input(3);
  const MatrixProduct d = matrix_product(ctx, a.shape(), b.shape());
  for (int i : {1, 2, 6, 7}) require_count(ctx, i, d.m);
  for (int i : {4, 5}) require_count(ctx, i, d.n);
  const auto x = centered(ctx, a, zero_points(ctx, 2), a.rank() - 2);
  const auto y = centered(ctx, b, zero_points(ctx, 5), b.rank() - 1);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(ctx.output(0).size()));
  run_matrix_product(d, x.data(), y.data(), sums.data());
  const auto zero = zero_points(ctx, 7);
  with_type(QuantizedTypes{}, ctx, ctx.output(0).type(), [&](auto tag) {
    using T = decltype(tag);
    T* out = ctx.output(0).data<T>();
    for (std::int64_t i = 0; i < ctx.output(0).size(); ++i) {
      const std::int64_t row = i / d.n % d.m, column = i % d.n;
      const double scale =
          double{scale_at(ctx.input(1), row)} * scale_at(ctx.input(4), column) / scale_at(ctx.input(6), row);
      const std::int32_t offset = zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(row) % zero.size()];
      out[i] = quantize<T>(sums[static_cast<std::size_t>(i)] * scale, offset);
    }
  });
}

}  // namespace

OpDef qlinear_matmul() {
  return {.name = "QLinearMatMul",
          .since_version = 10,
          .inputs = {8, 8},
          .types = {kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes},
          .precision = PrecisionRule::kFixed,
          .kind = OpKind::kContraction,
          .weights = 0b11110110,
          .yields_quantized = true,
          .infer = infer_qlinear_matmul,
          .run = run_qlinear_matmul,
          .multiply_adds = multiply_adds_of_matmul};
}

}  // namespace ulpscope::ops
