// How runners are run, and what is kept of it.
#pragma once

#include <chrono>

#include "args/option_table.h"

namespace ulpscope::cli {

struct InferenceArgs {
  std::optional<int> warm_up;
  bool use_subprocess = false;
  std::optional<std::string> save_inputs, save_outputs;
  std::vector<std::string> postprocess;
  std::optional<double> python_time_limit;

  void declare(OptionTable& table);
  /// Zero: none.
  std::chrono::milliseconds call_limit() const;
  /// The same for scripts that only describe networks and builds: an endless one should not keep anybody waiting.
  std::chrono::milliseconds description_limit() const;
  /// Throws Error for values that make no sense.
  void check() const;
};

}  // namespace ulpscope::cli
