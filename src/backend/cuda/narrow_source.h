// CUDA source of a product of few rows by a matrix of narrow elements, and the program behind it: bound by the bytes of
// the matrix, which is read once, a few bits per element.
#pragma once

#include <cstdint>

#include "backend/cuda/kernel_source.h"
#include "backend/cuda/program_source.h"
#include "backend/narrow_weights.h"

namespace ulpscope::cuda {

/// program(x w), x [m, k] row-major, without gaps; sums in float32 are load 0 of the program, which has no row
/// instructions. Weights are float32(element * scale), rounded to the type of x.
struct NarrowProductSpec {
  std::int64_t m = 0, n = 0, k = 0;
  DataType type = DataType::kFloat16;  ///< Of x: float16 or bfloat16.
  Format format = Format::kInt4;       ///< As NarrowWeights, all three.
  std::int64_t block = 0;
  bool half_scales = false;
  ProgramSpec program;  ///< Its domain: dimensions that make up the rows, then the columns.
};

/// Whether the kernel takes such operands: up to kMostNarrowRows rows, k and blocks in multiples of kNarrowWord.
bool has_narrow_source(const NarrowProductSpec& spec);

/// The kernel takes x, the packed elements and scales, then pointers of the program's inputs but the first, then of its
/// outputs. REQUIRES: has_narrow_source().
KernelSource narrow_product_source(const NarrowProductSpec& spec);

/// The elements and scales of the matrix in the order in which lanes of a warp read them: bytes, and float32 that are
/// stored as scale_type().
Tensor packed_elements(const NarrowProductSpec& spec, const NarrowWeights::Matrix& matrix);
Tensor packed_scales(const NarrowProductSpec& spec, const NarrowWeights::Matrix& matrix);
DataType scale_type(const NarrowProductSpec& spec);

}  // namespace ulpscope::cuda
