// Det, ai.onnx 11, 22: determinants of square matrices, by elimination with partial pivoting.
#include <cmath>

#include "ops/elementwise.h"

namespace ulpscope::ops {
namespace {

void infer_det(InferContext& ctx) {
  ctx.set_type(0, ctx.type(0));
  Shape shape = ctx.shape(0);
  if (shape.size() < 2 || shape.back() != shape[shape.size() - 2])
    ctx.fail(fmt::format("expected square matrices, got shape {}", to_string(shape)));
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
  with_type(FloatTypes{}, ctx, scratch.type(), [&](auto tag) {
    using T = decltype(tag);
    T* matrices = scratch.data<T>();
    T* out = ctx.output(0).data<T>();
    parallel_for(ctx.output(0).size(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = determinant(matrices + i * n * n, n);
    });
  });
}

}  // namespace

OpDef det() { return {.name = "Det", .since_version = 11, .types = {kFloats}, .infer = infer_det, .run = run_det}; }

}  // namespace ulpscope::ops
