// How large the values of a tensor are, row by row: what region scaling asks of every tensor of a network.
#pragma once

#include <cstdint>

#include "graph/op.h"

namespace ulpscope::ops {

/// Counts of one tensor, whose rows run along the last axis, as int32 elements. Values that are not finite and masks
/// (kLargestCounted and beyond) count as 0. All of them stay what they are in whatever order rows are counted.
struct RowMagnitudes {
  static constexpr float kLargestCounted = 1e30F;
  /// Rows by the binary logarithm of their root mean square, in halves of a bit from kFirstBit on; the last bins also
  /// have what is beyond them.
  static constexpr int kFirstBit = -150, kBits = 280, kPerBit = 2, kBins = kBits * kPerBit;
  static constexpr int kZeroRows = kBins;      ///< Rows of nothing but zeros.
  static constexpr int kLargest = kBins + 1;   ///< The bits of the largest magnitude; 0: nothing but zeros.
  static constexpr int kLargestFinite = kBins + 2;  ///< The same with masks.
  /// kInfinity minus the bits of the smallest finite magnitude that is not 0, masks among them; 0: none.
  static constexpr int kSmallest = kBins + 3;
  static constexpr int kSize = kBins + 4;
  static constexpr std::int32_t kInfinity = 0x7f800000;
};

/// Input 0: floats; output 0: RowMagnitudes. No operator of a file: searches add such layers to a network.
const OpDef& row_magnitudes();

}  // namespace ulpscope::ops
