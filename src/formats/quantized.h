// The only place where a largest value becomes a scale, and where numbers become the elements of a narrow format.
#pragma once

#include <limits>
#include <span>

#include "formats/encoding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// How an activation becomes elements with one scale: the nearest element to x / scale, ties to even; of integers
/// within -128 to 127, or 0 to 255 when unsigned; of floats within their largest values.
struct Quantization {
  float scale = 0;
  Format elements = Format::kInt8;

  bool is_unsigned() const noexcept { return elements == Format::kUInt8; }
  bool is_integer() const noexcept { return !format().is_float; }
  const NumericFormat& format() const noexcept { return format_of(elements); }
  float lowest() const noexcept { return static_cast<float>(format().lowest()); }
  float largest() const noexcept { return static_cast<float>(format().largest()); }
  friend bool operator==(const Quantization&, const Quantization&) = default;
};
/// To 8-bit integers.
constexpr Quantization to_bytes(float scale, bool is_unsigned) noexcept {
  return {scale, is_unsigned ? Format::kUInt8 : Format::kInt8};
}

/// Of scales in between, integers from -127 to 127 * scale / scale are the integers again. The largest is that of a
/// mask of the largest negative number.
inline constexpr float kSmallestScale = 0x1p-100f, kLargestScale = std::numeric_limits<float>::max() / 127;

/// The scale of values of this largest magnitude: largest / 127 for int8. 1 where that is below kSmallestScale, as in a
/// channel of zeros, or one that a BatchNormalization with a tiny factor went into: its integers are zeros.
float scale_for(const NumericFormat& format, float largest) noexcept;

/// The scales that float32 values bring themselves, in the order of the layout; NaN has no say.
Tensor own_scales(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values);

/// The scale of an activation whose int8 scale was calibrated: of the same largest value. With a second scale: that
/// one.
float scale_from_int8(const Encoding& encoding, float int8_scale) noexcept;

/// A tensor in an encoding: value = element * (scale * second).
struct Quantized {
  Tensor elements;   ///< float32, of the shape of the values: numbers of the format.
  Tensor scales;     ///< float32, in the order of the layout: numbers of the format of the scales.
  float second = 1;  ///< Of the whole tensor; 1 where the encoding has none.
};

/// How blocks take their scales from their values.
struct ScaleRules {
  float second = 0;  ///< The second scale, calibrated; 0: from the largest of the values.
  /// A block scale that would be rounded to 0 is the smallest one instead. Activations vanish: GPUs leave them at 0.
  bool keep_small = true;
  /// For scales of least error: what the square of an error counts, per position along the axis of blocks. Empty: 1.
  std::span<const float> weights{};
  /// For scales of least error: those that were chosen before for the same values, in the order of the layout.
  std::span<const float> chosen{};
};

/// The elements of float32 values, each with the rounded scale of its block; granularity kChannel and kTensor as
/// own_scales() has them. NaN has no say in a scale, and stays NaN in a float format.
/// E4M3 scales under a second one: largest / (6 * second), at most 448, 1 of zeros. E8M0: the power of two that is not
/// below largest / (the format's largest value). int4: largest / 7, at least 1e-5. NVIDIA's Model Optimizer 0.47 does
/// the same, as does OCP's MX 1.0 but for the power of two, which is rounded down there and saturates: 2^(exponent of
/// largest - exponent of the format's largest value).
/// Of least error: of the largest value times 1, 1.5, .95, .9, .85, .8 and .75 (int4: the scale times 1, .95, .9, .85,
/// .8, .75, .7 and .6), each made a scale as above, that with the least sum of weight * (value - what it becomes)^2 in
/// double; of equal ones the first. What is not finite leaves the block its first.
Quantized quantize(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values,
                   const ScaleRules& rules = {});
/// The values that these stand for: element * (scale * second), rounded once where that is not exact.
Tensor dequantized(const Quantized& from, const ScaleLayout& layout);
/// What products sum: elements, whose scales come behind the sum; in blocks, the values that they stand for.
Tensor summed_elements(const Encoding& encoding, const Quantized& from, const ScaleLayout& layout);
/// The scales behind the sum: of the tensor (one) or of the channels; 1 of blocks.
Tensor outer_scales(const Encoding& encoding, const Quantized& from);

/// summed_elements() of an activation with this calibrated scale (per tensor, or the second one); `back`: the values
/// that they stand for. `out` may be the values.
void quantize_activation(const Encoding& encoding, const ScaleLayout& layout, const Tensor& values, float scale,
                         float* out, bool back);

/// The elements of float32 values, held in float32; `back`: times their scales again. `out` may be the values.
void quantize(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values, const Tensor& scales,
              float* out, bool back);
/// The same of an activation, with one scale.
Tensor quantized(const Tensor& values, const Quantization& by, bool back);

}  // namespace ulpscope
