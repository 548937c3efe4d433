// What values may be: held against the ways in which TensorRT's options are written, also where this engine ignores
// them. A word that is mistyped is so for every engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "args/option_table.h"

namespace ulpscope::cli {

/// "16", "16e6", "2.5G", as Polygraphy reads numbers of bytes, also "16MiB"; factors are powers of 1024. Throws Error,
/// of which the message begins with what scripts look for, also below `least`.
std::size_t parse_byte_count(std::string_view option, const std::string& text, std::size_t least = 0);

/// A number of bytes.
OptionCheck bytes_check();
/// A number of bytes, or a share of them in percent.
OptionCheck bytes_or_percent_check();
/// KEY:VALUE, where `value_name` says what the value is.
OptionCheck named_check(std::string value_name);
/// POOL:BYTES for pools of these names.
OptionCheck pools_check(std::vector<std::string> pools);
/// Names of this list, in any case; any identifiers if it is empty.
OptionCheck names_check(std::vector<std::string> known);

}  // namespace ulpscope::cli
