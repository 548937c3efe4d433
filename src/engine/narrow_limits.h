// What products by a matrix of a few bits per element have a kernel of their own, which reads these alone: the cost
// model and the backend agree here.
#pragma once

#include <cstdint>

namespace ulpscope {

/// Up to so many rows, and sizes in multiples of so many elements.
inline constexpr std::int64_t kMostNarrowRows = 8, kNarrowWord = 16;

}  // namespace ulpscope
