// Layers of 8-bit integers, as onnxruntime.quantization writes them in its format of operators (QOperator).
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/contraction/matrix_product.h"
#include "ops/elementwise.h"
#include "ops/multiply_adds.h"
#include "ops/quantization/byte_loops.h"
#include "ops/quantization/quantization.h"
#include "ops/window.h"

namespace ulpscope::ops {
namespace {

constexpr std::string_view kMicrosoft = "com.microsoft";

/// `scales` are float32, and a zero point, if any, is behind each, of the type of input 0.
void require_byte_types(InferContext& ctx, std::initializer_list<int> scales) {
  for (int i : scales) {
    require_type(ctx, i, DataType::kFloat32);
    require_type_of_first(ctx, {i + 1});
  }
}

ByteScale scale_of(const KernelContext& ctx, int i) {
  for (int k : {i, i + 1}) require_count(ctx, k, 1);
  return {ctx.input(i).data<float>()[0], zero_points(ctx, i + 1)[0]};
}

ByteSign sign_of(const Tensor& bytes) {
  return bytes.type() == DataType::kInt8 ? ByteSign::kSigned : ByteSign::kUnsigned;
}

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point.
void infer_byte_arithmetic(InferContext& ctx) {
  require_byte_types(ctx, {1, 4, 6});
  require_type_of_first(ctx, {3});
  ctx.set_shape(0, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(3)));
}

template <bool multiplies>
void run_byte_arithmetic_layer(KernelContext& ctx) {
  const Tensor &a = ctx.input(0), &b = ctx.input(3), &out = ctx.output(0);
  run_byte_arithmetic({multiplies, sign_of(a), scale_of(ctx, 1), scale_of(ctx, 4), scale_of(ctx, 6)}, a.raw(),
                      a.shape(), b.raw(), b.shape(), ctx.output(0).raw(), out.shape());
}

// Inputs: x, x_scale, x_zero_point, y_scale, y_zero_point.
void infer_byte_function(InferContext& ctx) {
  require_byte_types(ctx, {1, 3});
  ctx.set_shape(0, ctx.shape(0));
}

template <typename Function>
void run_byte_function(KernelContext& ctx, const Function& function) {
  const Tensor& x = ctx.input(0);
  look_up_bytes(make_byte_table(sign_of(x), scale_of(ctx, 1), scale_of(ctx, 3), function), x.raw(), x.size(),
                ctx.output(0).raw());
}

void run_qlinear_sigmoid(KernelContext& ctx) {
  run_byte_function(ctx, [](float x) { return static_cast<float>(1 / (1 + std::exp(-static_cast<double>(x)))); });
}

void run_qlinear_leaky_relu(KernelContext& ctx) {
  const float alpha = ctx.attributes().real("alpha", 0.01F);
  run_byte_function(ctx, [alpha](float x) { return x >= 0 ? x : x * alpha; });
}

/// Up to version 12, Softmax is over all dimensions from its axis on.
void run_qlinear_softmax(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const auto rank = static_cast<std::int64_t>(x.shape().size());
  const bool over_one = ctx.attributes().required_integer("opset") >= 13;
  const auto axis = static_cast<std::size_t>(normalize_axis(ctx, ctx.attributes().integer("axis", -1), rank));
  const Around all = around(x.shape(), axis);
  const std::array<std::int64_t, 3> sizes{all.outer, over_one ? all.size : all.size * all.inner,
                                          over_one ? all.inner : 1};
  softmax_bytes(sign_of(x), scale_of(ctx, 1).scale, scale_of(ctx, 3), x.raw(), sizes, ctx.output(0).raw());
}

void infer_qlinear_softmax(InferContext& ctx) {
  if (!ctx.attributes().has("opset")) ctx.fail("expected the attribute 'opset'");
  infer_byte_function(ctx);
}

// Inputs: condition, x, x_scale, x_zero_point, y, y_scale, y_zero_point, z_scale, z_zero_point.
void infer_qlinear_where(InferContext& ctx) {
  ctx.set_type(0, ctx.type(1));
  require_type(ctx, 0, DataType::kBool);
  for (int i : {3, 4, 6, 8}) require_type(ctx, i, ctx.type(1));
  for (int i : {2, 5, 7}) require_type(ctx, i, DataType::kFloat32);
  ctx.set_shape(0, broadcast_or_fail(ctx, broadcast_or_fail(ctx, ctx.shape(0), ctx.shape(1)), ctx.shape(4)));
}

void run_qlinear_where(KernelContext& ctx) {
  const Tensor &condition = ctx.input(0), &x = ctx.input(1), &y = ctx.input(4);
  Tensor& out = ctx.output(0);
  const ByteSign sign = sign_of(x);
  const ByteScale to = scale_of(ctx, 7);
  const auto same = [](float real) { return real; };
  const ByteTable of_x = make_byte_table(sign, scale_of(ctx, 2), to, same),
                  of_y = make_byte_table(sign, scale_of(ctx, 5), to, same);
  const BroadcastRows rows(
      out.shape(), {broadcast_strides(condition.shape(), out.shape()), broadcast_strides(x.shape(), out.shape()),
                    broadcast_strides(y.shape(), out.shape())});
  rows.for_each([&](std::int64_t first, const std::int64_t* at) {
    const bool* chosen = condition.data<bool>() + at[0];
    const auto* a = static_cast<const std::uint8_t*>(x.raw()) + at[1];
    const auto* b = static_cast<const std::uint8_t*>(y.raw()) + at[2];
    auto* to_row = static_cast<std::uint8_t*>(out.raw()) + first;
    for (std::int64_t i = 0; i < rows.count(); ++i)
      to_row[i] = chosen[i * rows.step(0)] ? of_x[a[i * rows.step(1)]] : of_y[b[i * rows.step(2)]];
  });
}

/// What QLinearGlobalAveragePool and QLinearAveragePool read, channels first.
Shape channels_first(const Layer& layer, Shape shape) {
  if (layer.attributes.integer("channels_last", 0) != 0 && shape.size() > 2)
    std::rotate(shape.begin() + 1, shape.end() - 1, shape.end());
  return shape;
}
Shape as_layer_has_it(const Layer& layer, Shape shape) {
  if (layer.attributes.integer("channels_last", 0) != 0 && shape.size() > 2)
    std::rotate(shape.begin() + 1, shape.begin() + 2, shape.end());
  return shape;
}

void infer_qlinear_global_average_pool(InferContext& ctx) {
  require_byte_types(ctx, {1, 3});
  Shape shape = channels_first(ctx.layer(), ctx.shape(0));
  if (shape.size() < 3) ctx.fail("expected an input of rank 3 or more, got {}", shape.size());
  std::fill(shape.begin() + 2, shape.end(), 1);
  ctx.set_shape(0, as_layer_has_it(ctx.layer(), std::move(shape)));
}

void run_qlinear_global_average_pool(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const Shape shape = channels_first(ctx.layer(), x.shape());
  average_bytes(sign_of(x), scale_of(ctx, 1), scale_of(ctx, 3), x.raw(),
                {shape[0], shape[1], product(shape, 2, shape.size())},
                ctx.attributes().integer("channels_last", 0) != 0, ctx.output(0).raw());
}

void infer_qlinear_average_pool(InferContext& ctx) {
  require_byte_types(ctx, {1, 3});
  const Shape input = channels_first(ctx.layer(), ctx.shape(0));
  ctx.set_shape(0, as_layer_has_it(ctx.layer(), pool_geometry(ctx.layer(), input).output_shape()));
}

void run_qlinear_average_pool(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  const WindowGeometry g = pool_geometry(ctx.layer(), channels_first(ctx.layer(), x.shape()));
  const ByteWindows form{g.batch, g.in_channels, to_window3(ctx.layer(), g),
                         ctx.attributes().integer("count_include_pad", 0) != 0};
  average_windows(sign_of(x), scale_of(ctx, 1), scale_of(ctx, 3), form, x.raw(),
                  ctx.attributes().integer("channels_last", 0) != 0, ctx.output(0).raw());
}

// Inputs: y_scale, y_zero_point, then x, x_scale, x_zero_point of each tensor.
void infer_qlinear_concat(InferContext& ctx) {
  ctx.set_type(0, ctx.type(1));
  if (ctx.num_inputs() % 3 != 2) ctx.fail("expected two inputs and three for each tensor, got {}", ctx.num_inputs());
  require_type(ctx, 0, DataType::kFloat32);
  for (int i = 2; i < ctx.num_inputs(); i += 3) {
    for (int k : {i, i + 2}) require_type(ctx, k, ctx.type(1));
    require_type(ctx, i + 1, DataType::kFloat32);
  }
  Shape shape = ctx.shape(2);
  const auto axis = static_cast<std::size_t>(
      normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(shape.size())));
  for (int i = 5; i < ctx.num_inputs(); i += 3) {
    Shape part = ctx.shape(i);
    if (part.size() != shape.size()) ctx.fail("{} and {} do not fit", to_string(shape), to_string(part));
    shape[axis] += std::exchange(part[axis], shape[axis]);
    part[axis] = shape[axis];
    if (part != shape) ctx.fail("{} and {} do not fit along axis {}", to_string(shape), to_string(ctx.shape(i)), axis);
  }
  ctx.set_shape(0, std::move(shape));
}

void run_qlinear_concat(KernelContext& ctx) {
  const Tensor& out = ctx.output(0);
  const auto axis = static_cast<std::size_t>(
      normalize_axis(ctx, ctx.attributes().integer("axis", 0), static_cast<std::int64_t>(out.shape().size())));
  const Around around_out = around(out.shape(), axis);
  const ByteScale to = scale_of(ctx, 0);
  std::int64_t first = 0;
  for (int i = 2; i < ctx.num_inputs(); i += 3) {
    const std::int64_t width = ctx.input(i).shape()[axis] * around_out.inner;
    place_bytes(sign_of(out), scale_of(ctx, i + 1), to, ctx.input(i).raw(), around_out.outer, width,
                static_cast<std::uint8_t*>(ctx.output(0).raw()) + first, around_out.size * around_out.inner);
    first += width;
  }
}

// Inputs: a, a_scale, a_zero_point, b, b_scale, b_zero_point, c (int32, of the product's scale), y_scale, y_zero_point.
void infer_qgemm(InferContext& ctx) {
  ctx.set_type(0, ctx.has_input(7) ? ctx.has_input(8) ? ctx.type(8) : DataType::kUInt8 : DataType::kFloat32);
  for (int i : {1, 4, 7}) require_type(ctx, i, DataType::kFloat32);
  require_type(ctx, 2, ctx.type(0));
  require_type(ctx, 5, ctx.type(3));
  require_type(ctx, 6, DataType::kInt32);
  for (int i : {0, 3})
    if (ctx.rank(i) != 2) ctx.fail("expected a matrix as input {}, got a tensor of rank {}", i, ctx.rank(i));
  const bool turned_a = ctx.attributes().integer("transA", 0) != 0,
             turned_b = ctx.attributes().integer("transB", 0) != 0;
  if (ctx.shape(0)[turned_a ? 0 : 1] != ctx.shape(3)[turned_b ? 1 : 0])
    ctx.fail("{} and {} do not fit", to_string(ctx.shape(0)), to_string(ctx.shape(3)));
  const Shape output{ctx.shape(0)[turned_a ? 1 : 0], ctx.shape(3)[turned_b ? 0 : 1]};
  if (ctx.has_input(6) && broadcast_or_fail(ctx, output, ctx.shape(6)) != output)
    ctx.fail("C of shape {} does not spread over {}", to_string(ctx.shape(6)), to_string(output));
  ctx.set_shape(0, output);
}

void run_qgemm(KernelContext& ctx) {
  const std::int64_t m = ctx.output(0).shape()[0], n = ctx.output(0).shape()[1];
  const bool turned_a = ctx.attributes().integer("transA", 0) != 0,
             turned_b = ctx.attributes().integer("transB", 0) != 0;
  const std::int64_t k = ctx.input(0).shape()[turned_a ? 0 : 1];
  for (int i : {1, 2, 7, 8}) require_count(ctx, i, 1);
  for (int i : {4, 5}) require_count(ctx, i, n);
  auto a = centered(ctx, ctx.input(0), zero_points(ctx, 2), 1);
  auto b = centered(ctx, ctx.input(3), zero_points(ctx, 5), turned_b ? 0 : 1);
  if (turned_a) a = transposed(a.data(), k, m);
  if (turned_b) b = transposed(b.data(), n, k);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(m * n));
  multiply_parallel(a.data(), b.data(), sums.data(), m, n, k);
  if (ctx.has_input(6)) {
    const auto strides = broadcast_strides(ctx.input(6).shape(), ctx.output(0).shape());
    const auto* c = ctx.input(6).data<std::int32_t>();
    for (std::int64_t i = 0; i < m * n; ++i)
      sums[static_cast<std::size_t>(i)] =
          plus(sums[static_cast<std::size_t>(i)], c[i / n * strides[0] + i % n * strides[1]]);
  }
  const auto b_scales = ctx.input(4).values<float>();
  const float alpha = ctx.attributes().real("alpha", 1) * ctx.input(1).data<float>()[0];
  const auto scale_at = [&](std::int64_t i) {
    return alpha * b_scales[b_scales.size() == 1 ? 0 : static_cast<std::size_t>(i % n)];
  };
  if (!ctx.has_input(7)) {
    for (std::int64_t i = 0; i < m * n; ++i)
      ctx.output(0).data<float>()[i] = static_cast<float>(sums[static_cast<std::size_t>(i)]) * scale_at(i);
    return;
  }
  const ByteScale to = scale_of(ctx, 7);
  auto* out = static_cast<std::uint8_t*>(ctx.output(0).raw());
  for (std::int64_t i = 0; i < m * n; ++i)
    out[i] = static_cast<std::uint8_t>(
        requantized(sums[static_cast<std::size_t>(i)], scale_at(i) / to.scale, to.zero, sign_of(ctx.output(0))));
}

/// A row of the table.
OpDef byte_op(OpDef op, Infer infer, Run run) {
  op.domain = kMicrosoft;
  op.yields_quantized = true;
  return fixed_op(op, infer, run);
}
constexpr std::array<TypeSet, 9> kOneOperand{kBytes, kFloats, kBytes, kFloats, kBytes};
constexpr std::array<TypeSet, 9> kTwoOperands{kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes};

}  // namespace

OpTable quantized_layers() {
  return {
      // QLinearAdd, QLinearMul, com.microsoft 1: of real numbers that bytes stand for, as a byte again.
      byte_op({.name = "QLinearAdd", .inputs = {7, 8}, .types = kTwoOperands, .weights = 0b11110110},
              infer_byte_arithmetic, run_byte_arithmetic_layer<false>),
      byte_op({.name = "QLinearMul", .inputs = {7, 8}, .types = kTwoOperands, .weights = 0b11110110},
              infer_byte_arithmetic, run_byte_arithmetic_layer<true>),
      // QLinearSigmoid, QLinearLeakyRelu, com.microsoft 1: functions of one byte.
      byte_op({.name = "QLinearSigmoid", .inputs = {4, 5}, .types = kOneOperand, .weights = 0b11110},
              infer_byte_function, run_qlinear_sigmoid),
      byte_op({.name = "QLinearLeakyRelu", .inputs = {4, 5}, .types = kOneOperand, .weights = 0b11110},
              infer_byte_function, run_qlinear_leaky_relu),
      // QLinearSoftmax, com.microsoft 1: shares of powers of e, as bytes.
      byte_op({.name = "QLinearSoftmax", .inputs = {4, 5}, .types = kOneOperand, .weights = 0b11110},
              infer_qlinear_softmax, run_qlinear_softmax),
      // QLinearWhere, com.microsoft 1: one of two tensors, in a scale of its own.
      byte_op({.name = "QLinearWhere",
               .inputs = {9, 9},
               .types = {TypeSet{DataType::kBool}, kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, kFloats, kBytes},
               .weights = 0b111101100},
              infer_qlinear_where, run_qlinear_where),
      // QLinearGlobalAveragePool, QLinearAveragePool, com.microsoft 1; with channels_last, the layout says so.
      byte_op({.name = "QLinearGlobalAveragePool", .inputs = {4, 5}, .types = kOneOperand, .weights = 0b11110},
              infer_qlinear_global_average_pool, run_qlinear_global_average_pool),
      byte_op({.name = "QLinearAveragePool", .inputs = {4, 5}, .types = kOneOperand, .weights = 0b11110},
              infer_qlinear_average_pool, run_qlinear_average_pool),
      // QLinearConcat, com.microsoft 1: tensors side by side, in one scale.
      byte_op({.name = "QLinearConcat",
               .inputs = {5, kAnyNumber},
               .types = {kFloats, kBytes, kBytes | kFloats},
               .weights = 0b11011011011011011011011011011011},
              infer_qlinear_concat, run_qlinear_concat),
      // QGemm, com.microsoft 1: alpha a' b' + c, as bytes or as float32.
      byte_op({.name = "QGemm",
               .inputs = {6, 9},
               .types = {kBytes, kFloats, kBytes, kBytes, kFloats, kBytes, TypeSet{DataType::kInt32}, kFloats, kBytes},
               .kind = OpKind::kContraction,
               .weights = 0b111111110,
               .multiply_adds = multiply_adds_of_gemm},
              infer_qgemm, run_qgemm),
  };
}

}  // namespace ulpscope::ops
