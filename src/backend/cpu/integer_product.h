// Matrix products of 8-bit integers by our own loops: in the place of float32 on processors without dot products of
// bytes, and MatMulInteger.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// There are loops for this processor, and sums of so many products are exact in 32 bits.
bool multiplies_integers(std::int64_t k);

/// The same as make_matmul_kernel() of bytes, with a constant b. REQUIRES: multiplies_integers(spec.k), all of k, and
/// an `a` that is not transposed. b is packed once, in 16 bits, under a key that all plans share.
std::unique_ptr<Kernel> make_integer_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache);

/// The same for bytes less their zero points, which take 9 bits.
bool multiplies_centered_integers(std::int64_t k);

/// MatMulInteger. Inputs of the kernel: a, and its zero point (one element; null: 0). constant_b is int16, without its
/// zero points; type_b: int8 where that holds it. Output: int32, or what `bytes` makes of it by column.
/// REQUIRES: multiplies_centered_integers(spec.k), and as above.
std::unique_ptr<Kernel> make_matmul_integer_kernel(const MatMulSpec& spec, const ObjectCache& cache,
                                                   const std::optional<Requantization>& bytes = std::nullopt);

/// Sums of so many products of uint8 and int8 are exact in 32 bits, and this processor has them.
bool multiplies_bytes_with_zeros(std::int64_t k);

/// So many matrices, one behind the other, for products by bytes: IntegerPart::b, and behind it the sums of the
/// columns.
PreparedObject pack_bytes(const Tensor& values, const MatrixShape& shape, std::int64_t matrices);

/// One of them, and what the sums of its columns begin from.
struct ByteMatrix {
  const std::int16_t* b;
  std::vector<std::int32_t> start;
};
/// `zero`: of the other operand. Part::start and Part::b of the matrix at `index` among those of pack_bytes().
ByteMatrix byte_matrix(const void* packed, const MatrixShape& shape, std::int64_t index, std::int32_t zero);

/// So many matrices of int8 or int16, [n, k] where `shape` says that they are transposed, as IntegerPart::b wants them;
/// each takes packed_integers() elements.
PreparedObject pack_integers(const Tensor& values, const MatrixShape& shape, std::int64_t matrices);
std::int64_t packed_integers(const MatrixShape& shape);

}  // namespace ulpscope::cpu
