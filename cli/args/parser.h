// Words into the targets of an option table.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "args/normalize.h"
#include "args/option_table.h"

namespace ulpscope::cli {

struct ParseResult {
  bool help = false;  ///< --help was asked for; nothing was set.
  std::vector<std::string> unrecognized;
  std::vector<const Option*> ignored;  ///< Options given that have no effect, in the order typed, each once.
  const Option* refused = nullptr;     ///< The first option given that is refused.
};

/// Normalises the words and sets the targets. Throws UsageError.
ParseResult parse(const OptionTable& table, std::span<const std::string> words);

}  // namespace ulpscope::cli
