// Convolutions of every channel by itself, by loops of our own.
#pragma once

#include <memory>

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// As make_convolution_kernel(). Every sum adds up the window in its order, then the bias: the same bits for any number
/// of threads. Nothing for other convolutions than those of float32 with one input channel in each of some groups.
std::unique_ptr<Kernel> make_depthwise_kernel(const ConvolutionSpec& spec, const ObjectCache& cache);

}  // namespace ulpscope::cpu
