#include "args/python_limit.h"

#include <fmt/format.h>

#include "ulpscope/error.h"

namespace ulpscope::cli {

void PythonLimitArgs::declare(OptionTable& table) {
  table.ours().value(
      {"--python-time-limit"}, time_limit, "SECONDS",
      "Longest that one call into Python may take: a script's function, one inference of ONNX Runtime (default: "
      "60 for scripts that define or edit a network or a config, else 600; 0: no limit)");
}

std::chrono::milliseconds PythonLimitArgs::call_limit() const {
  return std::chrono::milliseconds(static_cast<std::int64_t>(time_limit.value_or(600.0) * 1000.0));
}

std::chrono::milliseconds PythonLimitArgs::description_limit() const {
  return time_limit ? call_limit() : std::chrono::milliseconds(60000);
}

void PythonLimitArgs::check() const {
  if (time_limit && !(*time_limit >= 0 && *time_limit < 1e9))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[options] --python-time-limit: expected seconds, got {}", *time_limit));
}

}  // namespace ulpscope::cli
