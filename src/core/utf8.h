// Text that files, terminals and Python take.
#pragma once

#include <string>
#include <string_view>

namespace ulpscope {

/// The text, with the sign for what cannot be read (U+FFFD) in place of each byte that is no part of a character in
/// UTF-8. What is UTF-8 stays as it is.
std::string as_utf8(std::string_view text);

}  // namespace ulpscope
