// Elements of blocks, and the scales that blocks bring.
#pragma once

#include "formats/quantized.h"

namespace ulpscope {

/// The elements of float32 values, or the values that these stand for where `scaled`, with the scale of each block
/// where `scales` is not null. `out` may be the values. `rules.second` is not looked at: `second` is.
void quantize_blocks(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float second,
                     const ScaleRules& rules, bool scaled, float* out, float* scales);

/// What choosing among scales found out: what it takes to quantize the same values again without.
struct ChosenScales {
  Tensor scales;     ///< float32, in the order of the layout.
  float second = 1;  ///< Of the whole tensor.
};
/// Whether quantize() chooses among several scales per block.
bool chooses_scales(const Encoding& encoding);

/// dequantized(quantize(...)), without the elements in between. `chosen`: where what was chosen goes; REQUIRES then:
/// chooses_scales().
Tensor quantized_and_back(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                          const ScaleRules& rules = {}, ChosenScales* chosen = nullptr);
/// The same, in the place of the values.
void quantize_and_back(const Encoding& encoding, const ScaleLayout& layout, Tensor& values,
                       const ScaleRules& rules = {}, ChosenScales* chosen = nullptr);

}  // namespace ulpscope
