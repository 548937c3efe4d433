// Products of two matrices, and determinants.
#include <cmath>

#include "ops/adjoint_values.h"
#include "ops/common.h"
#include "ops/contraction/accumulated.h"
#include "ops/elementwise.h"
#include "ops/multiply_adds.h"

namespace ulpscope::ops {
namespace {

void infer_matmul(InferContext& ctx) {
  require_type_of_first(ctx, {1});
  if (ctx.has_shape(0)) ctx.set_shape(0, matrix_product(ctx, ctx.shape(0), ctx.shape(1)).output());
}

void run_matmul(KernelContext& ctx) {
  const MatrixProduct d = matrix_product(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  with_type(WideTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    multiply_matrices(ctx, d, ctx.input(0).data<T>(), ctx.input(1).data<T>(), ctx.output(0).data<T>());
  });
}

/// From here on, the elements of a matrix take more memory than reshaping its factor costs.
constexpr std::int64_t kLargeMatrix = std::int64_t{1} << 20;

/// The rows of all of `g` times the transpose of one matrix b: a constant b is not copied for that.
Value times_transposed(Value g, Value b, std::int64_t k, std::int64_t n) {
  AdjointContext& ctx = *g.ctx;
  Shape shape = g.shape();
  shape.back() = k;
  const Value rows = reshape(g, {num_elements(g.shape()) / n, n}), matrix = reshape(b, {k, n});
  const Value product{&ctx, ctx.add("Gemm", {rows.id, matrix.id}, {{"transB", std::int64_t{1}}})};
  return reshape(product, shape);
}

void adjoint_matmul(AdjointContext& ctx) {
  const MatrixProduct d = matrix_product(ctx, ctx.input_shape(0), ctx.input_shape(1));
  Shape rows = d.batch;
  rows.insert(rows.end(), {d.m, d.n});
  const Value g = reshape(gradient(ctx), rows);
  if (ctx.wants(0)) {
    const Value b = reshape(input(ctx, 1), d.b);
    const bool one = num_elements(d.batch_of(d.b)) == 1 && d.n * d.k >= kLargeMatrix;
    const Value product = one ? times_transposed(g, b, d.k, d.n) : matmul(g, transposed(b));
    ctx.set(0, reshape(sum_to(product, d.a), ctx.input_shape(0)).id);
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

struct GemmSizes {
  bool trans_a, trans_b;
  std::int64_t m, n, k;
};

template <typename Context>
GemmSizes gemm_sizes(const Context& ctx, const Shape& a, const Shape& b) {
  if (a.size() != 2 || b.size() != 2)
    ctx.fail("expected two matrices, got shapes {} and {}", to_string(a), to_string(b));
  GemmSizes s{ctx.attributes().integer("transA", 0) != 0, ctx.attributes().integer("transB", 0) != 0, 0, 0, 0};
  s.m = a[s.trans_a ? 1 : 0];
  s.k = a[s.trans_a ? 0 : 1];
  s.n = b[s.trans_b ? 0 : 1];
  if (const std::int64_t rows = b[s.trans_b ? 1 : 0]; rows != s.k)
    ctx.fail("shapes {} and {} do not fit: {} columns against {} rows", to_string(a), to_string(b), s.k, rows);
  return s;
}

void infer_gemm(InferContext& ctx) {
  require_type_of_first(ctx, {1, 2});
  const GemmSizes s = gemm_sizes(ctx, ctx.shape(0), ctx.shape(1));
  const Shape shape{s.m, s.n};
  if (ctx.has_input(2) && broadcast(ctx.shape(2), shape) != shape)
    ctx.fail("C of shape {} cannot be broadcast to {}", to_string(ctx.shape(2)), to_string(shape));
  ctx.set_shape(0, shape);
}

void run_gemm(KernelContext& ctx) {
  const GemmSizes s = gemm_sizes(ctx, ctx.input(0).shape(), ctx.input(1).shape());
  const float alpha = ctx.attributes().real("alpha", 1), beta = ctx.attributes().real("beta", 1);
  with_type(WideTypes{}, ctx, ctx.input(0).type(), [&]<typename T>(T) {
    const T* a = ctx.input(0).data<T>();
    const T* b = ctx.input(1).data<T>();
    T* out = ctx.output(0).data<T>();
    std::vector<T> a_rows, b_rows;
    if (s.trans_a) a = (a_rows = transposed(a, s.k, s.m)).data();
    if (s.trans_b) b = (b_rows = transposed(b, s.n, s.k)).data();
    multiply_matrices(ctx, MatrixProduct{.a = {s.m, s.k}, .b = {s.k, s.n}, .m = s.m, .n = s.n, .k = s.k}, a, b, out);
    const auto scaled = [](float factor, T value) { return factor == 1 ? value : static_cast<T>(factor * value); };
    if (alpha != 1)
      for (std::int64_t i = 0; i < s.m * s.n; ++i) out[i] = scaled(alpha, out[i]);
    if (!ctx.has_input(2) || beta == 0) return;
    const T* c = ctx.input(2).data<T>();
    const auto strides = broadcast_strides(ctx.input(2).shape(), {s.m, s.n});
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j) {
        T& y = out[i * s.n + j];
        y = static_cast<T>(y + scaled(beta, c[i * strides[0] + j * strides[1]]));
      }
  });
}

void adjoint_gemm(AdjointContext& ctx) {
  const Attributes& attributes = ctx.attributes();
  const std::int64_t trans_a = attributes.integer("transA", 0) != 0 ? 1 : 0,
                     trans_b = attributes.integer("transB", 0) != 0 ? 1 : 0;
  const float alpha = attributes.real("alpha", 1), beta = attributes.real("beta", 1);
  const Value g = gradient(ctx);
  const auto product = [&](Value a, std::int64_t first, Value b, std::int64_t second) {
    return ctx.add("Gemm", {a.id, b.id}, {{"alpha", alpha}, {"transA", first}, {"transB", second}});
  };
  if (ctx.wants(0)) {
    const Value b = input(ctx, 1);
    ctx.set(0, trans_a != 0 ? product(b, trans_b, g, 1) : product(g, 0, b, 1 - trans_b));
  }
  if (ctx.wants(1)) {
    const Value a = input(ctx, 0);
    ctx.set(1, trans_b != 0 ? product(g, 1, a, trans_a) : product(a, 1 - trans_a, g, 0));
  }
  if (ctx.wants(2)) ctx.set(2, (sum_to(g, ctx.input_shape(2)) * static_cast<double>(beta)).id);
}

void infer_det(InferContext& ctx) {
  Shape shape = ctx.shape(0);
  if (shape.size() < 2 || shape.back() != shape[shape.size() - 2])
    ctx.fail("expected square matrices, got shape {}", to_string(shape));
  shape.resize(shape.size() - 2);
  ctx.set_shape(0, std::move(shape));
}

/// Destroys the matrix.
template <typename T>
T determinant(T* m, std::int64_t n) {
  T result = 1;
  for (std::int64_t column = 0; column < n; ++column) {
    std::int64_t pivot = column;
    for (std::int64_t row = column + 1; row < n; ++row)
      if (std::abs(m[row * n + column]) > std::abs(m[pivot * n + column])) pivot = row;
    if (m[pivot * n + column] == 0) return 0;
    if (pivot != column) {
      std::swap_ranges(m + pivot * n, m + (pivot + 1) * n, m + column * n);
      result = -result;
    }
    const T diagonal = m[column * n + column];
    result *= diagonal;
    for (std::int64_t row = column + 1; row < n; ++row) {
      const T factor = m[row * n + column] / diagonal;
      for (std::int64_t k = column; k < n; ++k) m[row * n + k] -= factor * m[column * n + k];
    }
  }
  return result;
}

void run_det(KernelContext& ctx) {
  Tensor scratch = ctx.input(0).clone();
  const std::int64_t n = scratch.shape().back();
  with_type(FloatTypes{}, ctx, scratch.type(), [&]<typename T>(T) {
    T* matrices = scratch.data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_each(ctx.output(0).size(), 1, [&](std::int64_t i) { out[i] = determinant(matrices + i * n * n, n); });
  });
}

}  // namespace

OpTable matmul() {
  return {
      // MatMul, ai.onnx 1, 9, 13: numpy.matmul.
      make_op({.name = "MatMul",
               .inputs = {2, 2},
               .types = {set_of(WideTypes{})},
               .kind = OpKind::kContraction,
               .function = Function::kMatMul,
               .multiply_adds = multiply_adds_of_matmul},
              infer_matmul, run_matmul, adjoint_matmul),
      // Gemm, ai.onnx 1, 6, 7, 9, 11, 13: alpha * A' * B' + beta * C, where A' and B' may be transposed.
      make_op({.name = "Gemm",
               .inputs = {2, 3},
               .types = {set_of(WideTypes{})},
               .kind = OpKind::kContraction,
               .function = Function::kGemm,
               .multiply_adds = multiply_adds_of_gemm},
              infer_gemm, run_gemm, adjoint_gemm),
      // Det, ai.onnx 11, 22: determinants of square matrices, by elimination with partial pivoting.
      make_op({.name = "Det", .since_version = 11, .types = {kFloats}}, infer_det, run_det),
  };
}

}  // namespace ulpscope::ops
