// -v, -q and where log lines go.
#pragma once

#include "args/option_table.h"

namespace ulpscope::cli {

struct LoggingArgs {
  int verbose = 0, quiet = 0;
  std::vector<std::string> verbosity, format;
  bool silent = false;
  std::optional<std::string> file;

  void declare(OptionTable& table);
  /// Installs sink and level. Throws Error for an unknown level or a log file that cannot be written.
  void apply() const;
};

}  // namespace ulpscope::cli
