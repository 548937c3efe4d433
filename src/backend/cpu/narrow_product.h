// Products with weights that stay in the narrow type that their file has.
#pragma once

#include <memory>

#include "backend/cpu/product.h"
#include "formats/rounding.h"

namespace ulpscope::cpu {

/// Columns of the weights are widened, block by block, into memory of the thread that multiplies them: no float32 copy
/// is kept, and every run reads half of the bytes. `weights`: a matrix [k, n], [n, k] if spec.transpose_b, float32 by
/// its type; rounded by `first` and `last`. The bits are those of make_matmul_kernel(). Nothing for weights that are
/// not stored as float16 or bfloat16, for products of more than two matrices, for long sums, and without AVX-512,
/// where oneDNN's sums depend on how a product is cut.
std::unique_ptr<Kernel> make_narrow_matmul_kernel(const MatMulSpec& spec, const Tensor& weights, Rounding first,
                                                  Rounding last);

/// The elements are float16 or bfloat16 in the file, and not in memory.
bool is_stored_narrow(const Tensor& value);

}  // namespace ulpscope::cpu
