// What products by a matrix of a few bits per element have a kernel of their own, which reads these alone: the cost
// model and the backend agree here.
#pragma once

#include <cstdint>

namespace ulpscope {

/// Up to so many rows, and sizes in multiples of so many elements.
inline constexpr std::int64_t kMostNarrowRows = 8, kNarrowWord = 16;

/// Whether sums over k, whose weights share scales in such blocks, are made of whole words.
constexpr bool has_narrow_words(std::int64_t k, std::int64_t block) noexcept {
  return k > 0 && k % kNarrowWord == 0 && (block % kNarrowWord == 0 || block >= k);
}

}  // namespace ulpscope
