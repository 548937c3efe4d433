// The inputs of inference: generated, loaded or from a script.
#pragma once

#include "args/option_table.h"
#include "compare/name_values.h"

namespace ulpscope::cli {

struct DataLoaderArgs {
  std::optional<int> seed, iterations;
  std::optional<double> int_min, int_max, float_min, float_max;
  std::vector<std::string> val_range, load_inputs;
  std::optional<std::string> script;

  void declare(OptionTable& table);
  /// Warns of options that have no effect beside loaded data or a script.
  void warn_of_unused() const;
  bool generates() const noexcept { return load_inputs.empty() && !script; }

  /// --val-range, or the older options. Throws Error for what is no range.
  PerName<ValueRange> ranges() const;
};

}  // namespace ulpscope::cli
