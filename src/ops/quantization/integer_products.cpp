// Products of 8-bit integers.
#include <initializer_list>
#include <utility>

#include "ops/contraction/matrix_product.h"
#include "ops/convolution/convolve.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/byte_loops.h"
#include "ops/quantization/quantization.h"

namespace ulpscope::ops {
namespace {

/// Each pair is an input of bytes and its zero points, which have its type.
void require_zero_points_of(InferContext& ctx, std::initializer_list<std::pair<int, int>> pairs) {
  for (const auto& [bytes, zeros] : pairs) require_type(ctx, zeros, ctx.type(bytes));
}

// Inputs: x, w, x_zero_point, w_zero_point (one, or one per output channel).
void infer_conv_integer(InferContext& ctx) {
  require_zero_points_of(ctx, {{0, 2}, {1, 3}});
  ctx.set_type(0, DataType::kInt32);
  ctx.set_shape(0, conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(1)).output_shape());
}

void run_conv_integer(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(1).shape());
  const auto x = centered(ctx, ctx.input(0), zero_points(ctx, 2), 1);
  const auto w = centered(ctx, ctx.input(1), zero_points(ctx, 3), 0);
  convolve<std::int32_t>(g, to_window3(ctx.layer(), g), x.data(), w.data(), nullptr,
                         ctx.output(0).data<std::int32_t>());
}

void infer_matmul_integer(InferContext& ctx) {
  require_zero_points_of(ctx, {{0, 2}, {1, 3}});
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

// Inputs: x, x_scale, x_zero_point, w, w_scale, w_zero_point, y_scale, y_zero_point, B (int32, scale x_scale *
// w_scale).
void infer_qlinear_conv(InferContext& ctx) {
  ctx.set_type(0, ctx.type(7));
  for (int i : {1, 4, 6}) require_type(ctx, i, DataType::kFloat32);
  require_type(ctx, 8, DataType::kInt32);
  require_zero_points_of(ctx, {{0, 2}, {3, 5}});
  ctx.set_shape(0, conv_geometry(ctx.layer(), ctx.shape(0), ctx.shape(3)).output_shape());
}

void run_qlinear_conv(KernelContext& ctx) {
  const WindowGeometry g = conv_geometry(ctx.layer(), ctx.input(0).shape(), ctx.input(3).shape());
  for (int i : {1, 2, 6, 7}) require_count(ctx, i, 1);
  for (int i : {4, 5}) require_count(ctx, i, g.out_channels);
  if (ctx.has_input(8) && ctx.input(8).size() != g.out_channels)
    ctx.fail("expected a bias of {} elements, got {}", g.out_channels, ctx.input(8).size());
  const auto x = centered(ctx, ctx.input(0), zero_points(ctx, 2), 1);
  const auto w = centered(ctx, ctx.input(3), zero_points(ctx, 5), 0);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(ctx.output(0).size()));
  convolve<std::int32_t>(g, to_window3(ctx.layer(), g), x.data(), w.data(),
                         ctx.has_input(8) ? ctx.input(8).data<std::int32_t>() : nullptr, sums.data());
  const auto w_scales = ctx.input(4).values<float>();
  const float in_scale = ctx.input(1).data<float>()[0], out_scale = ctx.input(6).data<float>()[0];
  const std::int32_t zero = zero_points(ctx, 7)[0];
  const std::size_t volume = static_cast<std::size_t>(product(g.output, 0, g.output.size()));
  const ByteSign sign = ctx.output(0).type() == DataType::kInt8 ? ByteSign::kSigned : ByteSign::kUnsigned;
  auto* const out = static_cast<std::uint8_t*>(ctx.output(0).raw());
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t channel = i / volume % static_cast<std::size_t>(g.out_channels);
    const float scale = in_scale * w_scales[w_scales.size() == 1 ? 0 : channel] / out_scale;
    out[i] = static_cast<std::uint8_t>(requantized(sums[i], scale, zero, sign));
  }
}

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
void infer_qlinear_matmul(InferContext& ctx) {
  ctx.set_type(0, ctx.type(7));
  for (int i : {1, 4, 6}) require_type(ctx, i, DataType::kFloat32);
  require_zero_points_of(ctx, {{0, 2}, {3, 5}});
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
  const ByteSign sign = ctx.output(0).type() == DataType::kInt8 ? ByteSign::kSigned : ByteSign::kUnsigned;
  auto* const out = static_cast<std::uint8_t*>(ctx.output(0).raw());
  for (std::int64_t i = 0; i < ctx.output(0).size(); ++i) {
    const std::int64_t row = i / d.n % d.m, column = i % d.n;
    const float scale = scale_at(ctx.input(1), row) * scale_at(ctx.input(4), column) / scale_at(ctx.input(6), row);
    const std::int32_t offset = zero[zero.size() == 1 ? 0 : static_cast<std::size_t>(row) % zero.size()];
    out[i] = static_cast<std::uint8_t>(requantized(sums[static_cast<std::size_t>(i)], scale, offset, sign));
  }
}

/// A row of the table.
OpDef integer_product(OpDef op, Infer infer, Run run) {
  op.since_version = 10;
  op.kind = OpKind::kContraction;
  op.yields_quantized = true;
  return fixed_op(op, infer, run);
}

}  // namespace

OpTable integer_products() {
  return {
      // ConvInteger, ai.onnx 10: a convolution of 8-bit integers with int32 sums.
      integer_product({.name = "ConvInteger",
                       .inputs = {2, 4},
                       .types = {kBytes},
                       .weights = 0b1110,
                       .multiply_adds = multiply_adds_of_conv},
                      infer_conv_integer, run_conv_integer),
      // MatMulInteger, ai.onnx 10: a product of 8-bit matrices with int32 sums.
      integer_product({.name = "MatMulInteger",
                       .inputs = {2, 4},
                       .types = {kBytes},
                       .weights = 0b1100,
                       .multiply_adds = multiply_adds_of_matmul},
                      infer_matmul_integer, run_matmul_integer),
      // QLinearConv, ai.onnx 10: a convolution of 8-bit integers, quantized again.
      integer_product({.name = "QLinearConv",
                       .inputs = {8, 9},
                       .types = {kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes, kIndices},
                       .weights = 0b111111110,
                       .multiply_adds = multiply_adds_of_qlinear_conv},
                      infer_qlinear_conv, run_qlinear_conv),
      // QLinearMatMul, ai.onnx 10, 21: a product of 8-bit matrices, quantized again.
      integer_product({.name = "QLinearMatMul",
                       .inputs = {8, 8},
                       .types = {kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes},
                       .weights = 0b11110110,
                       .multiply_adds = multiply_adds_of_matmul},
                      infer_qlinear_matmul, run_qlinear_matmul),
  };
}

}  // namespace ulpscope::ops
