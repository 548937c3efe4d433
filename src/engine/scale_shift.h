// Inference BatchNormalization as a scale and a shift per channel, and both multiplied into a convolution.
#pragma once

#include "engine/specialization.h"
#include "formats/rounding.h"

namespace ulpscope {

/// x * scale + shift per channel, float32.
struct ScaleAndShift {
  Tensor scale, shift;
};

/// From the four constant parameters, rounded first, computed in double. REQUIRES: is_scale_shift(spec, layer).
ScaleAndShift scale_shift(const Specialization& spec, const Layer& layer, Rounding rounding);

/// Every parameter keeps its size when it is rounded: nothing overflows, nothing drowns among the subnormals. What is
/// no finite number stays what it is.
bool survives_rounding(const Specialization& spec, const Layer& layer, Rounding rounding);

/// What the layer multiplies by and adds when it computes in a type of this rounding. Parameters that do not survive
/// the rounding are prepared in fp32 and rounded after that.
ScaleAndShift rounded_scale_shift(const Specialization& spec, const Layer& layer, Rounding rounding);

/// The constant weights of a convolution (`transposed`: ConvTranspose) times the scale of the channel that they
/// compute, in float32.
Tensor scaled_weights(const Specialization& spec, const Layer& convolution, const Tensor& scale);
/// bias * scale + shift, in double and rounded to float32; without a bias the shift.
Tensor scaled_bias(const Specialization& spec, const Layer& convolution, const ScaleAndShift& channels);

}  // namespace ulpscope
