// How a tensor is stored: the format of its elements, and the scales that these are multiplied by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "formats/numeric_format.h"
#include "ulpscope/shape.h"

namespace ulpscope {

/// What shares one scale.
enum class Granularity : std::uint8_t { kNone, kTensor, kChannel, kBlock };

/// How the scale of a block comes from its values.
enum class BlockScale : std::uint8_t {
  kLargest,             ///< The largest value on the largest element; a power of two is rounded up.
  kLargestRoundedDown,  ///< The same, with a power of two rounded down: the largest value may saturate.
  /// Of the largest, and of a few multiples of it, that whose elements err least. Of integers, and under a second
  /// scale.
  kLeastError,
};

/// Real value = element * scale, or element * (scale * second scale).
struct Encoding {
  Format format = Format::kFloat32;
  Granularity granularity = Granularity::kNone;  ///< kNone: there is no scale.
  /// kChannel and kBlock: the dimension along which scales differ. kChannel: -1 for the output channels of the layer
  /// that reads the tensor, wherever it has them.
  int axis = 0;
  std::int64_t block = 1;  ///< kBlock: elements along the axis that share a scale; the last block may have less.
  Format scale = Format::kFloat32;
  /// The scales are themselves multiplied by one fp32 number for the whole tensor.
  bool second_scale = false;
  BlockScale rule = BlockScale::kLargest;  ///< kBlock: what makes the scales.

  friend bool operator==(const Encoding&, const Encoding&) = default;
};

/// Which scale belongs to which element of a tensor.
struct ScaleLayout {
  /// Of a scale per tensor.
  ScaleLayout() = default;
  /// REQUIRES: an axis in [0, rank) for kChannel and kBlock, a positive block for kBlock.
  ScaleLayout(const Encoding& encoding, const Shape& shape);

  /// The place of the scale of an element, both in row-major order.
  std::int64_t index(std::int64_t element) const noexcept {
    if (shared) return 0;
    const std::int64_t position = element / inner % axis;
    if (!blocked) return rows == 0 ? position : element / (inner * axis) / rows * axis + position;
    return (element / (inner * axis) * groups + position / block) * inner + element % inner;
  }

  /// How many elements from this one on, at least, have the same scale; no more than `most`.
  std::int64_t run(std::int64_t element, std::int64_t most) const noexcept {
    return shared ? most : std::min(most, blocked ? 1 : inner - element % inner);
  }

  std::int64_t axis = 1, inner = 1;  ///< The tensor as (anything, axis, inner).
  std::int64_t block = 1;            ///< Elements along the axis that share a scale.
  std::int64_t groups = 1;           ///< Scales along the axis.
  std::int64_t rows = 0;  ///< Per channel: the next so many of (axis, inner) have the next `axis` scales; 0: all.
  bool shared = true, blocked = false;
  Shape scales;  ///< The shape of the tensor of scales.
};

/// "fp16", "int8 * fp32 per channel of axis 0", "fp4 e2m1 * (fp8 e4m3fn * fp32) per block of 16 of axis 1"; behind
/// blocks a rule other than the first: ", of least error".
std::string to_string(const Encoding& encoding);

}  // namespace ulpscope
