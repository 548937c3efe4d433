// Constant matrices that go to the device as a file has them, and are brought into their order and type there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernel_source.h"
#include "ulpscope/tensor.h"

namespace ulpscope::cuda {

/// A matrix of float32 elements.
struct StoredMatrix {
  Tensor elements;
  std::int64_t rows = 0, columns = 0;  ///< As they lie.
  bool turned = false;                 ///< It is wanted column by column.
};

/// What a kernel of matrix_source() is told of the rows that it is given, which lie behind it.
struct MatrixPart {
  std::int64_t rows = 0, columns = 0;
  std::int64_t first = 0, all = 0;  ///< Which row of how many the first one is.
  std::int64_t turned = 0;
};
inline constexpr std::size_t kMatrixPartBytes = 256;  ///< Of a MatrixPart and nothing, ahead of its rows.

/// kernel(part, matrix): puts rows to their places in the matrix (`matrix`: its element 0), each element rounded to
/// `type`: float32, float16 or bfloat16. One kernel for all sizes.
KernelSource matrix_source(DataType type, const MatrixPart& part);

/// Where the elements of a float32 tensor are; `keep` has them if they had to be made.
const void* stored_elements(const Tensor& tensor, Tensor& keep);

}  // namespace ulpscope::cuda
