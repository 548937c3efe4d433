// How long users' scripts and Python runners may take.
#pragma once

#include <chrono>

#include "args/option_table.h"

namespace ulpscope::cli {

struct PythonLimitArgs {
  std::optional<double> time_limit;  ///< Seconds; 0: none.

  /// --python-time-limit, in the section at hand.
  void declare(OptionTable& table);
  /// Zero: none.
  std::chrono::milliseconds call_limit() const;
  /// The same for scripts that only describe networks and builds: an endless one should not keep anybody waiting.
  std::chrono::milliseconds description_limit() const;
  /// Throws Error for values that make no sense.
  void check() const;
};

}  // namespace ulpscope::cli
