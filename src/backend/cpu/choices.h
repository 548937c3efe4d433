// Where two implementations give the same bits, which one is taken: by shape alone, as a benchmark found it.
#pragma once

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// A convolution of bytes is faster with AMX than with dot products in vectors, where the processor has both. Measured
/// by bench/backend/convolution_bench.cpp on an Intel Xeon.
bool is_faster_in_tiles(const ConvolutionSpec& spec);

/// A depthwise convolution of bytes is faster as such than on floats.
bool is_faster_on_bytes(const ConvolutionSpec& spec);

/// Without dot products of bytes in oneDNN: by our own products of integers, if not by floats.
bool is_faster_in_pairs(const ConvolutionSpec& spec);

/// A convolution over three dimensions: as a product of patches, if not by the reference kernel.
bool is_faster_as_patches(const ConvolutionSpec& spec);

}  // namespace ulpscope::cpu
