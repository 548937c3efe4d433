// Matrix products by our own loops, for processors for which oneDNN has no product of packed weights, and for builds
// without it.
#pragma once

#include <memory>
#include <vector>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// The same as make_matmul_kernel(), of float32. A constant b is packed once, into panels of columns, under a key that
/// all plans share. Each result has the bits that ProductPart says: those of its row, its column and the bias alone,
/// whatever the number of threads, of rows or of matrices. Nothing for operands of bytes and for `panels_b`, and where
/// oneDNN's product takes less time: few rows, and an input b that is large or transposed. `post_ops`: done to results
/// behind the bias; those that add a tensor take the inputs behind a and b.
std::unique_ptr<Kernel> make_packed_matmul_kernel(const MatMulSpec& spec, const ObjectCache& cache,
                                                  std::vector<PostOp> post_ops = {});

/// The same as make_convolution_kernel() for a convolution whose windows are single places, one behind the other: it is
/// a product of matrices. Nothing for all others, and where oneDNN has kernels that are as fast.
std::unique_ptr<Kernel> make_pointwise_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
