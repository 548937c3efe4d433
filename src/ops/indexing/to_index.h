// Floats as indices.
#pragma once

#include <cstdint>

namespace ulpscope::ops {

/// An integral float as an index; what does not fit becomes one that lies far outside of any tensor, with room for
/// sums.
inline std::int64_t to_index(double value) noexcept {
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  if (!(value > static_cast<double>(-kFar))) return -kFar;  // NaN, too
  return value < static_cast<double>(kFar) ? static_cast<std::int64_t>(value) : kFar;
}

}  // namespace ulpscope::ops
