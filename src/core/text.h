// Texts that people type.
#pragma once

#include <cctype>
#include <string>
#include <string_view>

namespace ulpscope {

/// Of the letters of ASCII.
inline std::string lower_case(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

}  // namespace ulpscope
