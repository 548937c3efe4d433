// What of an attention in one group is rounded, and when.
#pragma once

#include <cstdint>

namespace ulpscope {

/// `--attention`: what the second product of an attention in one group reads where it rounds its operands. With
/// operands in float32 there is nothing to choose.
enum class AttentionRule : std::uint8_t {
  kNormalized,  ///< Probabilities.
  kFlash,       ///< exp(score - largest of the row). The results are divided by the sum of what these were unrounded.
};

}  // namespace ulpscope
