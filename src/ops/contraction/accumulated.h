// Products whose sums are added up as a tensor core does: those of the contractions' reference kernels that are asked
// for an accumulator. They are slow.
#pragma once

#include "formats/accumulator.h"
#include "ops/contraction/matrix_product.h"
#include "ops/window.h"

namespace ulpscope::ops {

/// As run_matrix_product().
void run_accumulated_product(const Accumulator& accumulator, const MatrixProduct& d, const float* a, const float* b,
                             float* out);

/// In a kernel of float32 with an accumulator, this; else run_matrix_product().
template <typename T>
void multiply_matrices(const KernelContext& ctx, const MatrixProduct& d, const T* a, const T* b, T* out) {
  if constexpr (std::is_same_v<T, float>)
    if (ctx.accumulator() != nullptr) return run_accumulated_product(*ctx.accumulator(), d, a, b, out);
  run_matrix_product(d, a, b, out);
}

/// As convolve() without a bias. A tensor core gets a convolution as a product of matrices; k runs over the places of
/// the kernel, and within a place over the channels, as where channels are the last dimension.
void convolve_accumulated(const Accumulator& accumulator, const WindowGeometry& g, const Window3& window,
                          bool transposed, const float* x, const float* w, float* out);

}  // namespace ulpscope::ops
