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

// How runners are run, and what is kept of it.

struct InferenceArgs {
  std::optional<int> warm_up;
  bool use_subprocess = false;
  std::optional<std::string> save_inputs, save_outputs;
  std::optional<std::string> save_input_blob;  ///< A folder; empty: the working directory.
  std::vector<std::string> postprocess;
  std::optional<std::string> postprocess_script;
  PythonLimitArgs python;

  void declare(OptionTable& table);
  /// Throws Error for values that make no sense.
  void check() const;
};

}  // namespace ulpscope::cli
