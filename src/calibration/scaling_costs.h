// What exponents of region scaling cost: lost range first, then small rows, headroom, and changes of the network.
#pragma once

#include <cmath>

#include "calibration/exponents.h"
#include "calibration/row_range.h"

namespace ulpscope {

inline const double kLargestFp16Exponent = std::log2(65504.0);
/// What lies below is 0 in fp16, for normal numbers and for the smallest of all.
inline constexpr int kNormalFp16Exponent = -14, kSmallestFp16Exponent = -24;

/// Values beyond fp16, or so near that other samples may be.
inline bool leaves_fp16(const RowRange& range) {
  return range.largest() * 2 > 65504 || range.share_below(kSmallestFp16Exponent - 1) > 0;
}

/// Of a tensor in fp16. `row_weight`: of what small rows lose.
ExponentCost range_cost(Exponent exponent, const RowRange& range, double row_weight = 1);

/// Of changing a constant, which stays exact in fp32. `in_fp16`: a layer reads it in fp16, where it must not become 0
/// if it is not now: `vanishing` is what that costs.
ExponentCost constant_cost(Exponent exponent, const RowRange& range, bool in_fp16, bool bears_lost_bits,
                           double vanishing);

/// Of an inserted factor, which fp16 must hold.
ExponentCost insertion_cost(Exponent exponent);

/// Of an epsilon that is multiplied by 2^exponent and has to stay a normal number of float32.
ExponentCost epsilon_cost(Exponent exponent, float epsilon);

}  // namespace ulpscope
