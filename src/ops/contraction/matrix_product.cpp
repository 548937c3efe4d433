#include "ops/contraction/matrix_product.h"

#include <cstring>

#include "core/instruction_set.h"

namespace ulpscope::ops {
namespace {

#if defined(__clang__)
#define ULPSCOPE_TARGET(set) __attribute__((target(set)))
#else
#define ULPSCOPE_TARGET(set) __attribute__((target(set), optimize("O3", "fp-contract=off")))
#endif
#define ULPSCOPE_ALWAYS_INLINE inline __attribute__((always_inline))

/// Some columns of b, one row after the other, and what they are multiplied with.
template <typename T>
struct TiledProduct {
  const T* a;
  std::int64_t rows, k;
  const T* b;
  T* out;
  std::int64_t out_row;  ///< From row to row.
};

/// `rows` rows of results, whose sums stay in registers.
template <typename T, int bytes, int rows, int vectors>
ULPSCOPE_ALWAYS_INLINE void multiply_tile(const TiledProduct<T>& p) {
  typedef T Vector __attribute__((vector_size(bytes)));
  constexpr int kLanes = bytes / sizeof(T);
  const T *a = p.a, *b = p.b;
  const std::int64_t k = p.k;
  Vector sums[rows][vectors] = {};
  for (std::int64_t i = 0; i < k; ++i, b += vectors * kLanes) {
    Vector y[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) std::memcpy(&y[v], b + v * kLanes, bytes);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const T x = a[r * k + i];
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sums[r][v] += x * y[v];
    }
  }
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v) std::memcpy(p.out + r * p.out_row + v * kLanes, &sums[r][v], bytes);
}

template <typename T, int bytes, int rows, int vectors>
ULPSCOPE_ALWAYS_INLINE void multiply_all_rows(TiledProduct<T> p) {
  for (; p.rows >= rows; p.rows -= rows, p.a += rows * p.k, p.out += rows * p.out_row)
    multiply_tile<T, bytes, rows, vectors>(p);
  for (; p.rows > 0; --p.rows, p.a += p.k, p.out += p.out_row) multiply_tile<T, bytes, 1, vectors>(p);
}

template <typename T>
void multiply_with_16_bytes(const TiledProduct<T>& p) {
  multiply_all_rows<T, 16, 4, 4>(p);
}
#if defined(__x86_64__) && defined(__GNUC__)
template <typename T>
ULPSCOPE_TARGET("avx2")
void multiply_with_32_bytes(const TiledProduct<T>& p) {
  multiply_all_rows<T, 32, 4, 2>(p);
}
template <typename T>
ULPSCOPE_TARGET("avx512f")
void multiply_with_64_bytes(const TiledProduct<T>& p) {
  multiply_all_rows<T, 64, 8, 2>(p);
}
#endif

template <typename T>
struct Tiles {
  void (*multiply)(const TiledProduct<T>& p);
  std::int64_t columns;
};

template <typename T>
Tiles<T> tiles_of([[maybe_unused]] InstructionSet set) {
#if defined(__x86_64__) && defined(__GNUC__)
  if (set == InstructionSet::kAvx512) return {multiply_with_64_bytes<T>, 128 / sizeof(T)};
  if (set == InstructionSet::kAvx2) return {multiply_with_32_bytes<T>, 64 / sizeof(T)};
#endif
  return {multiply_with_16_bytes<T>, 64 / sizeof(T)};
}

/// Tile by tile of columns, which are copied: a copy has all columns of a tile, zeros for those that b has not.
template <typename T>
void multiply_in_tiles(const T* a, const T* b, T* out, std::int64_t m, std::int64_t n, std::int64_t k) {
  static const Tiles<T> tiles = tiles_of<T>(instruction_set());
  const std::int64_t width = tiles.columns;
  std::vector<T> columns(static_cast<std::size_t>(k * width)), last;
  for (std::int64_t j = 0; j < n; j += width) {
    const std::int64_t count = std::min(width, n - j);
    for (std::int64_t p = 0; p < k; ++p) std::copy_n(b + p * n + j, count, columns.data() + p * width);
    if (count == width) {
      tiles.multiply({a, m, k, columns.data(), out + j, n});
      continue;
    }
    for (std::int64_t p = 0; p < k; ++p) std::fill_n(columns.data() + p * width + count, width - count, T{});
    last.resize(static_cast<std::size_t>(m * width));
    tiles.multiply({a, m, k, columns.data(), last.data(), width});
    for (std::int64_t i = 0; i < m; ++i) std::copy_n(last.data() + i * width, count, out + i * n + j);
  }
}

}  // namespace

void multiply_floats(const float* a, const float* b, float* out, std::int64_t m, std::int64_t n, std::int64_t k) {
  multiply_in_tiles(a, b, out, m, n, k);
}
void multiply_floats(const double* a, const double* b, double* out, std::int64_t m, std::int64_t n, std::int64_t k) {
  multiply_in_tiles(a, b, out, m, n, k);
}

}  // namespace ulpscope::ops
