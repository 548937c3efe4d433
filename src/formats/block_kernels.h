// The loops that make elements of a narrow format, and the scales of blocks, compiled once per instruction set. All
// give the same bits: they round as IEEE 754 says, and reorder no sums.
#pragma once

#include <cstdint>

#include "formats/numeric_format.h"

namespace ulpscope {

/// What tells the elements of a format: of integers, or of floats of at most 8 bits with a sign.
struct ElementForm {
  explicit ElementForm(const NumericFormat& format) noexcept;

  bool is_float;
  float lowest, largest;
  /// Of floats, as bits of a float32: the exponent of the smallest normal value, and what is between the exponent of a
  /// value and that of the number whose last bit is the value's.
  std::int32_t least_exponent, shift;
};

/// How the largest magnitude of a block becomes its scale.
struct BlockScaleForm {
  enum class Kind : std::uint8_t {
    kPowerAbove,   ///< The least power of two that is not below largest / top.
    kPowerBelow,   ///< 2^(exponent of largest - exponent of top).
    kUnderSecond,  ///< The nearest element to largest * factor / (top * second), 1 of 0.
  };
  Kind kind;
  float top;  ///< The largest element of the values' format.
  /// Of kUnderSecond:
  float second;
  float smallest;  ///< What a scale that would be rounded to 0 is instead, or 0.
  ElementForm scales;
};

/// Rows: blocks of `block` numbers that follow each other. Columns: each column of some rows is a block. What is
/// written may lie where what is read does.
struct BlockKernels {
  /// largest[b] = the largest magnitude of each block; NaN has no say.
  void (*largest_of_rows)(const float* in, std::int64_t block, std::int64_t count, float* largest);
  void (*largest_of_columns)(const float* in, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                             float* largest);
  void (*scales)(const BlockScaleForm& form, float factor, const float* largest, std::int64_t count, float* scales);
  /// out = the element nearest to in / by, ties to even, saturating; of floats, in * 0 where by is 0. `back`: times by.
  void (*rows)(const ElementForm& form, const float* in, const float* by, std::int64_t block, std::int64_t count,
               bool back, float* out);
  /// One row of columns.
  void (*columns)(const ElementForm& form, const float* in, const float* by, std::int64_t count, bool back, float* out);
  /// errors[c] += weight * (in[c] - made[c])^2.
  void (*add_errors)(const float* in, const float* made, double weight, std::int64_t count, double* errors);
};

const BlockKernels& block_kernels_baseline() noexcept;
const BlockKernels& block_kernels_avx2() noexcept;
const BlockKernels& block_kernels_avx512() noexcept;

/// Those of instruction_set().
const BlockKernels& block_kernels() noexcept;

}  // namespace ulpscope
