// Matrix products of the reference kernels, and numpy.matmul's shapes.
#pragma once

#include <array>

#include "ops/elementwise.h"

namespace ulpscope::ops {

/// multiply() of floats, with its bits, in vectors of instruction_set().
void multiply_floats(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k);
void multiply_floats(const double* a, const double* b, double* out, std::int64_t m, std::int64_t n, std::int64_t k);

/// out(m, n) = a(m, k) * b(k, n), all dense. T is the type of the accumulator too. Each element adds up its products in
/// the order of k; integers wrap around. One thread.
template <typename T>
void multiply(const T* a, const T* b, T* out, std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  constexpr std::int64_t kSome = 4;  // So many rows are worth a copy of b.
  if constexpr (std::is_floating_point_v<T>)
    if (m >= kSome && n >= kSome) return multiply_floats(a, b, out, m, n, k);
  for (std::int64_t i = 0; i < m; ++i) {
    T* row = out + i * n;
    std::fill(row, row + n, T{});
    for (std::int64_t p = 0; p < k; ++p) {
      const T factor = a[i * k + p];
      const T* other = b + p * n;
      for (std::int64_t j = 0; j < n; ++j) row[j] = plus(row[j], times(factor, other[j]));
    }
  }
}

/// The same on several threads: rows are split among them.
template <typename T>
void multiply_parallel(const T* a, const T* b, T* out, std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
  constexpr std::int64_t kRows = std::is_floating_point_v<T> ? 24 : 1;  // Floats copy b for each task.
  const std::int64_t rows = std::max(kRows, (1 << 18) / std::max<std::int64_t>(1, n * k));
  parallel_for(m, rows, [&](std::int64_t begin, std::int64_t end) {
    multiply(a + begin * k, b, out + begin * n, end - begin, n, k);
  });
}

/// out(columns, rows) = in(rows, columns) transposed.
template <typename T>
std::vector<T> transposed(const T* in, std::int64_t rows, std::int64_t columns) {
  std::vector<T> out(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) out[static_cast<std::size_t>(j * rows + i)] = in[i * columns + j];
  return out;
}

struct MatrixProduct {
  Shape a, b;   ///< With at least two dimensions each.
  Shape batch;  ///< Broadcast leading dimensions.
  std::int64_t m = 1, n = 1, k = 1;
  bool row = false, column = false;  ///< a, or b, is a vector: the output has no m, or n.

  /// (batch..., m, n), without the dimensions that vectors do not have.
  Shape output() const {
    Shape shape = batch;
    if (!row) shape.push_back(m);
    if (!column) shape.push_back(n);
    return shape;
  }
  Shape batch_of(const Shape& shape) const { return Shape(shape.begin(), shape.end() - 2); }
};

/// Works with both contexts; fails for shapes that do not fit.
template <typename Context>
MatrixProduct matrix_product(const Context& ctx, Shape a, Shape b) {
  if (a.empty() || b.empty()) ctx.fail("expected inputs with at least one dimension, got a scalar");
  MatrixProduct d;
  d.row = a.size() == 1;
  d.column = b.size() == 1;
  if (d.row) a.insert(a.begin(), 1);
  if (d.column) b.push_back(1);
  d.m = a[a.size() - 2];
  d.k = a.back();
  d.n = b.back();
  if (d.k != b[b.size() - 2])
    ctx.fail("shapes {} and {} do not fit: {} columns against {} rows", to_string(a), to_string(b), d.k,
             b[b.size() - 2]);
  auto batch = broadcast(d.batch_of(a), d.batch_of(b));
  if (!batch) ctx.fail("the leading dimensions of {} and {} cannot be broadcast together", to_string(a), to_string(b));
  d.batch = *std::move(batch);
  d.a = std::move(a);
  d.b = std::move(b);
  return d;
}

/// Calls function(index of the output matrix, of a's matrix, of b's matrix) for every matrix of the batch, in order.
template <typename Function>
void for_each_matrix(const MatrixProduct& d, Function&& function) {
  const std::array strides{broadcast_strides(d.batch_of(d.a), d.batch), broadcast_strides(d.batch_of(d.b), d.batch)};
  const std::int64_t total = num_elements(d.batch);
  for (std::int64_t i = 0; i < total; ++i) {
    std::int64_t at_a = 0, at_b = 0, rest = i;
    for (std::size_t axis = d.batch.size(); axis-- > 0; rest /= d.batch[axis]) {
      at_a += rest % d.batch[axis] * strides[0][axis];
      at_b += rest % d.batch[axis] * strides[1][axis];
    }
    function(i, at_a, at_b);
  }
}

/// out = a * b for every matrix of the batch.
template <typename T>
void run_matrix_product(const MatrixProduct& d, const T* a, const T* b, T* out) {
  struct Offsets {
    std::int64_t a, b;
  };
  std::vector<Offsets> offsets;
  for_each_matrix(d, [&](std::int64_t, std::int64_t at_a, std::int64_t at_b) {
    offsets.push_back({at_a * d.m * d.k, at_b * d.k * d.n});
  });
  if (offsets.size() == 1) return multiply_parallel(a, b, out, d.m, d.n, d.k);
  const std::int64_t cost = std::max<std::int64_t>(1, d.m * d.n * d.k);
  parallel_each(static_cast<std::int64_t>(offsets.size()), std::max<std::int64_t>(1, (1 << 18) / cost),
                [&](std::int64_t i) {
                  const Offsets& at = offsets[static_cast<std::size_t>(i)];
                  multiply(a + at.a, b + at.b, out + i * d.m * d.n, d.m, d.n, d.k);
                });
}

}  // namespace ulpscope::ops
