// Padding, axis by axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "ops/common.h"

namespace ulpscope::ops {

/// What a dimension of the result is: elements of the input from `cut` on, with others around them.
struct PaddedAxis {
  enum class Mode : std::uint8_t { kConstant, kReflect, kEdge, kWrap } mode;
  std::int64_t before, size, after, cut;  ///< size: up to 0 where the pads crop everything.

  std::int64_t inside() const { return std::max<std::int64_t>(size, 0); }
  std::int64_t length() const { return before + size + after; }

  /// The element of the input at place i of the result; -1: none.
  std::int64_t source(std::int64_t i) const {
    const std::int64_t at = i - before;
    if (at >= 0 && at < size) return cut + at;
    if (mode == Mode::kConstant) return -1;
    if (mode == Mode::kEdge) return cut + std::clamp<std::int64_t>(at, 0, size - 1);
    const std::int64_t period = mode == Mode::kWrap ? size : std::max<std::int64_t>(1, 2 * (size - 1));
    const std::int64_t phase = (at % period + period) % period;
    return cut + (phase < size ? phase : period - phase);
  }
};

/// `begin` and `end`: the pads of each axis, which fit as infer_pad() has it; negative ones crop.
std::vector<PaddedAxis> padded_axes(const Shape& in, const std::vector<std::int64_t>& begin,
                                    const std::vector<std::int64_t>& end, const std::string& mode);

/// Fills `out`, in parallel. `value`: what mode constant puts around, one element of the tensors' type.
void pad_elements(const Tensor& in, const std::vector<PaddedAxis>& axes, const Tensor& value, Tensor& out);

}  // namespace ulpscope::ops
