// The lines that show an array: its statistics, and its values or histogram.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "compare/statistics.h"

namespace ulpscope {

/// Logs "<title> | Stats: ..." (without a title: the statistics alone), then, indented, the values of arrays of at most
/// 100 elements and the histogram: at info level if `info`, else at verbose level.
void log_statistics(const Tensor& tensor, const Statistics& statistics, bool info, std::string_view title,
                    std::optional<std::pair<double, double>> histogram_range = std::nullopt);
void log_statistics(const Tensor& tensor, bool info, std::string_view title,
                    std::optional<std::pair<double, double>> histogram_range = std::nullopt);

}  // namespace ulpscope
