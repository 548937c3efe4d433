// How runners are run, and what is kept of it.
#pragma once

#include "args/option_table.h"
#include "args/python_limit.h"

namespace ulpscope::cli {

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
