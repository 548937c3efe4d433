// Matrix products of 8-bit integers by our own loops: in the place of float32 on processors without dot products of
// bytes, and MatMulInteger.
#pragma once

#include <memory>

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
/// zero points. Output: int32. REQUIRES: multiplies_centered_integers(spec.k), and as above.
std::unique_ptr<Kernel> make_matmul_integer_kernel(const MatMulSpec& spec, const ObjectCache& cache);

/// A matrix of int8, [n, k] where `shape` says that it is transposed, as IntegerPart::b wants it.
PreparedObject pack_integers(const Tensor& values, const MatrixShape& shape);

}  // namespace ulpscope::cpu
