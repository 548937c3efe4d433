// Matrix products of the reference kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "ops/elementwise.h"

namespace ulpscope::ops {

/// out(m, n) = a(m, k) * b(k, n), all dense. T is the type of the accumulator too. Each element adds up its products in
/// the order of k; integers wrap around. One thread.
template <typename T>
void multiply(const T* a, const T* b, T* out, std::int64_t m, std::int64_t n, std::int64_t k) noexcept {
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
  const std::int64_t rows = std::max<std::int64_t>(1, (1 << 18) / std::max<std::int64_t>(1, n * k));
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

}  // namespace ulpscope::ops
