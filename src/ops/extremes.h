// The least and the largest of numbers, and where one is: loops in vectors.
#pragma once

#include <cstdint>

namespace ulpscope::ops {

struct Extremes {
  float low, high;  ///< Of the numbers; infinity and -infinity where there are none.
  bool has_nan;     ///< Which is none of them.
};
/// Of zeros of both signs, either may be it.
Extremes extremes_of(const float* x, std::int64_t count);

/// The first element that equals `value`, or with NaN the first that is NaN; `count` if there is none.
std::int64_t find_first(const float* x, std::int64_t count, float value);

}  // namespace ulpscope::ops
