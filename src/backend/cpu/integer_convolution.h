// Convolutions of integers of 8 bits for processors without dot products of them.
#pragma once

#include <memory>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// As make_convolution_kernel() of bytes: what the windows of some outputs read is widened to 16 bits side by side, and
/// multiplied by the weights (IntegerPart). Nothing for groups and transposed ones, and where multiplies_integers() of
/// the products in a sum is false.
std::unique_ptr<Kernel> make_integer_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
