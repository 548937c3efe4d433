// Convolutions as products of matrices, by our own loops.
#pragma once

#include <memory>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// As make_convolution_kernel(), for float32, transposed ones too. What the windows of some outputs read is copied side
/// by side, and multiplied by the weights. Each result has the bits that ProductPart says, over the places of its
/// window in their order and the channels of each; what the window has outside of the image counts as zero, and as
/// nothing where a weight is not finite. Nothing for steps of a transposed one that are too long to be cut by.
std::unique_ptr<Kernel> make_patch_convolution_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
