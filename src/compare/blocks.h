#pragma once

#include <cstdint>
#include <limits>

namespace ulpscope {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Elements that one task of a comparison takes: sums do not depend on the number of threads.
inline constexpr std::int64_t kBlock = 1 << 14;

}  // namespace ulpscope
