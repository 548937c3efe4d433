// Convolutions of integers of 8 bits for processors without dot products of them.
#pragma once

#include <memory>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// As make_convolution_kernel() of bytes: what the windows of some outputs read is widened to 16 bits side by side, and
/// multiplied by the weights (IntegerPart). Nothing for groups and transposed ones, and where multiplies_integers() of
/// the products in a sum is false.
/// Of the type int16, both the input and the weights are bytes less their zero points, in any groups, and the results
/// are the sums as int32.
std::unique_ptr<Kernel> make_integer_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

/// The same by dot products of bytes. Inputs of the kernel: uint8 [n, spatial..., c], and its zero point, which is
/// there outside of the image. The weights are int16 that int8 holds, less their zero points. Nothing on other
/// processors.
std::unique_ptr<Kernel> make_byte_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
