// Where two implementations give the same bits, which one is taken: by shape alone, as a benchmark found it.
#pragma once

#include "backend/cpu/product.h"

namespace ulpscope::cpu {

/// A convolution of integers is faster on floats that hold them than on bytes, with the quantization of its input.
/// `spec`: of float32. Measured by bench/backend/convolution_bench.cpp on processors with dot products of bytes.
bool is_faster_on_floats(const ConvolutionSpec& spec);

/// A convolution of bytes is faster with AMX than with dot products in vectors, where the processor has both. Measured
/// by the same on an Intel Xeon.
bool is_faster_in_tiles(const ConvolutionSpec& spec);

/// Without dot products of bytes in oneDNN: by our own products of integers, if not by floats.
bool is_faster_in_pairs(const ConvolutionSpec& spec);

}  // namespace ulpscope::cpu
