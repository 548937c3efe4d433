#include "compare/statistics_log.h"

#include <string>

#include "compare/array_text.h"
#include "compare/histogram.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

// Larger arrays are shown by their histogram alone.
constexpr std::int64_t kSmallArray = 100;

std::string indented(const std::string& text) {
  std::string result = "    ";
  for (char c : text) {
    result += c;
    if (c == '\n') result += "    ";
  }
  return result;
}

}  // namespace

void log_statistics(const Tensor& tensor, const Statistics& statistics, bool info, std::string_view title,
                    std::optional<std::pair<double, double>> histogram_range) {
  log_info((title.empty() ? "" : std::string(title) + " | Stats: ") + to_string(statistics, tensor.size() == 0));
  const LogLevel level = info ? LogLevel::kInfo : LogLevel::kVerbose;
  if (!log_enabled(level)) return;
  const LogIndent indent;
  if (tensor.size() <= kSmallArray) log(level, "---- Values ----\n" + indented(array_text(tensor)));
  const auto histogram = compute_histogram(tensor, histogram_range);
  if (!histogram) return;
  std::string text = to_text(*histogram);
  if (text.empty()) return;
  text.pop_back();
  log(level, text);
}

void log_statistics(const Tensor& tensor, bool info, std::string_view title,
                    std::optional<std::pair<double, double>> histogram_range) {
  if (log_enabled(LogLevel::kInfo)) log_statistics(tensor, compute_statistics(tensor), info, title, histogram_range);
}

}  // namespace ulpscope
