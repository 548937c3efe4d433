// Elements of blocks, and the scales that blocks bring.
#pragma once

#include "formats/quantized.h"

namespace ulpscope {

/// The elements of float32 values, or the values that these stand for where `scaled`, with the scale of each block
/// where `scales` is not null. `out` may be the values. `rules.second` is not looked at: `second` is.
void quantize_blocks(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float second,
                     const ScaleRules& rules, bool scaled, float* out, float* scales);

/// dequantized(quantize(...)), without the elements and scales in between where these are of blocks.
Tensor quantized_and_back(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                          const ScaleRules& rules = {});

}  // namespace ulpscope
