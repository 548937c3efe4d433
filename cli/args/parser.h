// A command line as people type it, by the rules of Python's argparse, into the targets of an option table.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "args/option_table.h"

namespace ulpscope::cli {

/// One use of an option, with the words that belong to it.
struct Occurrence {
  const Option* option;
  std::vector<std::string> values;
};

struct Arguments {
  std::vector<Occurrence> occurrences;  ///< In the order typed; all of them.
  std::optional<std::string> positional;
  std::vector<std::string> more_positionals;
  std::vector<std::string> unrecognized;  ///< Words that belong to nothing, in the order typed.
  bool help = false;                      ///< -h, --help or --help-all came before any mistake.
  bool help_all = false;                  ///< It was the last of them.
};

/// Reads `words` by the rules of Python's argparse (parse_known_args): options may be cut to a unique prefix,
/// `--opt=value` gives one value, lists take every word up to the next option, a word such as -1.5 is a value, words
/// after `--` are values, -vvq is -v -v -q. Unlike argparse (of Python 3.11), a prefix that fits several names of one
/// option is not ambiguous. Throws UsageError with argparse's message.
Arguments read_arguments(const OptionTable& table, std::span<const std::string> words);

/// The same, and sets the targets, unless help was asked for or words were not recognized. The last use of an option
/// counts, except for flags that are counted or ordered and for repeated lists, where every use does. Throws
/// UsageError.
Arguments parse(const OptionTable& table, std::span<const std::string> words);

}  // namespace ulpscope::cli
