// Ten equal bins, and their picture in text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "ulpscope/tensor.h"

namespace ulpscope {

struct Histogram {
  std::array<std::int64_t, 10> counts{};
  std::array<double, 11> edges{};
};

/// NumPy's rule: bins closed on the left, the last one on both sides; values outside of the range are not counted; a
/// range of one value is widened by 0.5 both ways. The range is that of the data unless given.
/// Nothing for bool, for an empty array and for a range with NaN or infinity.
std::optional<Histogram> compute_histogram(const Tensor& tensor,
                                           std::optional<std::pair<double, double>> range = std::nullopt);

/// "---- Histogram ----", the header and ten lines, each ended by a newline. Empty when no element was counted.
std::string to_text(const Histogram& histogram);

}  // namespace ulpscope
