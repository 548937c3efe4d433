// A product of matrices and the program behind it as one kernel, for the tensor cores of sm_90.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/matrix_product.h"
#include "backend/cuda/program_source.h"

namespace ulpscope::cuda {

/// program(a b), sums as MatrixProductSpec has them: they are load 0 of the program, which has no row instructions.
struct FusedProductSpec {
  /// float16, bfloat16, fp8 or int8, one matrix each, k innermost in both. What it says of results and of d does not
  /// matter; n may count columns that nobody wants.
  MatrixProductSpec product;
  ProgramSpec program;                    ///< Its domain: dimensions that make up the rows, then the columns.
  std::vector<std::int64_t> row_strides;  ///< Per dimension but the last: what a step along it adds to the row of `a`.
};

/// What one warp group computes at a time, and how far ahead operands are loaded.
struct ProductTile {
  int rows = 128, columns = 128;
  int cluster = 2;  ///< Blocks with rows one below the other, which share what they load of b: 1 or 2.
  /// Names the tile among tactics: "128x128 clusters of 2".
  std::string text() const;
};

/// The kernel takes the descriptors of a and b, then pointers of the program's inputs but the first, then of its
/// outputs.
struct FusedProductKernel {
  KernelSource source;
  BoxedMatrix a, b;
};

/// Whether the kernel takes such operands.
bool has_fused_source(const FusedProductSpec& spec);

/// The tiles worth timing, on so many processors. REQUIRES, as all below: has_fused_source().
std::vector<ProductTile> product_tiles(const FusedProductSpec& spec, int processors);

/// The one that text() names; nothing for other texts.
std::optional<ProductTile> tile_of(std::string_view text);

FusedProductKernel fused_product_source(const FusedProductSpec& spec, const ProductTile& tile, int processors);

}  // namespace ulpscope::cuda
