// What backends read off the description of a product: the matrices, and what may ride on their product.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/kernels.h"
#include "ops/forms.h"

namespace ulpscope {

/// out[b, m, n] = sum_k a[b, m, k] b[b, k, n]; batches are equal, or 1 for a broadcast operand.
struct MatrixShape {
  std::vector<std::int64_t> batch_a, batch_b;  ///< Of equal length.
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;  ///< The operand is stored as [k, m] / [n, k].
};

/// MatMul, or Gemm with these results, as one product of matrices, with batches only where they are needed. Nothing for
/// vectors, and for more than four batch dimensions that differ.
std::optional<MatrixShape> matrix_shape(const ops::MatrixForm& form, const Shape& a, const Shape& b,
                                        const Shape& results);

/// The shapes of what a layer reads; nothing unless all of it is held as floats that are not encoded.
std::optional<std::vector<Shape>> float_shapes(const Specialization& spec, const LayerKernel& kernel);

/// What Gemm adds to its product, if anything.
Operand addend_of(const ProductKernel& product, const ops::MatrixForm& form);

/// The instruction behind `value` that is its only use, when nothing stores `value`: it may ride on what computes it.
/// `user`: its register.
const Program::Value* only_use(const ProgramKernel& epilogue, Register value, Register* user);

/// The load that an Add adds to `value`; null: something else is added.
const Load* addend(const ProgramKernel& epilogue, const Program::Value& add, Register value);

/// The same where it is a computed tensor, in numbers, of the shape of the results; null: it is not.
const Load* computed_addend(const Specialization& spec, const ProgramKernel& epilogue, const Program::Value& add,
                            Register value);

}  // namespace ulpscope
