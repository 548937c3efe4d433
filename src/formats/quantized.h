// The only place where a largest value becomes a scale, and where numbers become the elements of an integer format.
#pragma once

#include <limits>

#include "formats/encoding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// How an activation becomes integers: q = clamp(round_half_even(x / scale), -128, 127), or 0 to 255 when unsigned.
struct Quantization {
  float scale = 0;
  bool is_unsigned = false;

  const NumericFormat& format() const noexcept { return format_of(is_unsigned ? Format::kUInt8 : Format::kInt8); }
  float lowest() const noexcept { return static_cast<float>(format().lowest()); }
  float largest() const noexcept { return static_cast<float>(format().largest()); }
  friend bool operator==(const Quantization&, const Quantization&) = default;
};

/// Of scales in between, integers from -127 to 127 * scale / scale are the integers again. The largest is that of a
/// mask of the largest negative number.
inline constexpr float kSmallestScale = 0x1p-100f, kLargestScale = std::numeric_limits<float>::max() / 127;

/// The scale of values of this largest magnitude: largest / 127 for int8. 1 where that is below kSmallestScale, as in a
/// channel of zeros, or one that a BatchNormalization with a tiny factor went into: its integers are zeros.
float scale_for(const NumericFormat& format, float largest) noexcept;

/// The scales that float32 values bring themselves, in the order of the layout; NaN has no say.
Tensor own_scales(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values);

/// The elements of float32 values, held in float32; `back`: times their scales again. `out` may be the values.
void quantize(const NumericFormat& format, const ScaleLayout& layout, const Tensor& values, const Tensor& scales,
              float* out, bool back);
/// The same of an activation.
Tensor quantized(const Tensor& values, const Quantization& by, bool back);

}  // namespace ulpscope
