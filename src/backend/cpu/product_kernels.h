// The loops of packed matrix products, compiled once per instruction set (program_kernels.h).
#pragma once

#include <cstdint>

namespace ulpscope::cpu {

/// A part of a product out = a b + bias: some rows and columns of it, and all of k. Strides are in elements.
///
/// out[r, c] is the sum, over k, of one chain of (fused, where the set has it) multiplications and additions for each
/// kSpan of k, from 0 and in the order of k; the chains' sums are added in order, then the bias. Whatever else a part
/// is - its rows, its columns, where it begins - changes no bit.
struct ProductPart {
  const float* a;
  std::int64_t a_stride;  ///< From row to row.
  const float* b;         ///< The first column's panel.
  /// 0: b is packed: panels of ProductKernels::panel columns, k rows each; the last panel has as many columns as there
  /// are, rounded up to whole vectors. Else from row to row of b, which is read where it lies.
  std::int64_t b_stride;
  const float* bias;  ///< Of the first column; may be null.
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns, k;
};

/// A part of a product of integers of 8 bits and a sign, which are held in 16: some rows and columns of it, and all of
/// k. The sums are exact, and rounded to float32 once. REQUIRES: they are less than 2^31.
struct IntegerPart {
  /// `bytes`: the memory of uint8 whose products with int8 are added, four at a time in the place of two numbers of 16
  /// bits, in `b`, too; a_stride and k count pairs of bytes, k an even number of them.
  const std::int16_t* a;
  std::int64_t a_stride;  ///< From row to row, in elements; even. What is beyond k is 0.
  /// Panels of ProductKernels::panel columns. One has the numbers of all of its columns for k = 0 and 1, side by side,
  /// then for 2 and 3, and so on; what there is not is 0.
  const std::int16_t* b;
  float* out;
  std::int64_t out_stride;
  std::int64_t rows, columns, k;
  bool as_integers;  ///< `out` is memory of int32, for the sums themselves.
  bool bytes;
  const std::int32_t* start;  ///< Of bytes: what the sums begin from, by column, for whole panels.
};

struct ProductKernels {
  static constexpr std::int64_t kSpan = 256;

  std::int64_t lanes;  ///< Of a vector.
  std::int64_t panel;  ///< Columns; a multiple of lanes.
  /// With b in place, `columns` is a multiple of lanes.
  void (*multiply)(const ProductPart& part);
  /// out[c, r] = in[r, c]; out has `rows` columns. Strides from row to row.
  void (*transpose)(const float* in, std::int64_t in_stride, std::int64_t rows, std::int64_t columns, float* out,
                    std::int64_t out_stride);
  /// Null: floats that hold the integers are faster.
  void (*multiply_integers)(const IntegerPart& part);
  /// Whether this processor multiplies IntegerPart::bytes.
  bool (*has_byte_products)();
};

}  // namespace ulpscope::cpu
