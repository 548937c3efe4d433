// The command, or the person, that judges a try.
#pragma once

#include <regex>
#include <string>
#include <vector>

#include "args/debug.h"

namespace ulpscope::cli {

/// What a command did.
struct CommandOutcome {
  int status = 0;  ///< Its exit status; minus the signal that ended it.
  std::string out, err;
};

/// Runs a program (found in PATH) with its output captured, and waits for it. On Ctrl-C it is ended and Error is
/// thrown. Output of what it leaves running behind is not waited for. Throws Error(kNotFound) when it cannot be
/// started.
CommandOutcome run_command(const std::vector<std::string>& words);

class Check {
 public:
  /// Throws Error for a regular expression that does not parse.
  explicit Check(const CheckArgs& args);

  /// Runs the command, or asks on the terminal about `subject`; logs what Polygraphy logs. Throws Error when the
  /// command cannot be started, and at the end of the input.
  bool passes(const std::string& subject) const;

 private:
  bool failed(const CommandOutcome& outcome) const;

  const CheckArgs& args_;
  std::vector<int> fail_codes_, ignored_codes_;
  std::vector<std::regex> regexes_;
};

}  // namespace ulpscope::cli
