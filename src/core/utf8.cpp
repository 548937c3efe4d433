#include "core/utf8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ulpscope {
namespace {

/// Bytes of the character that begins the text; 0: none does. Not overlong, no half of a surrogate pair, up to
/// U+10FFFF.
std::size_t character_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  const bool overlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool beyond = (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return overlong || beyond ? 0 : length;
}

}  // namespace

std::string as_utf8(std::string_view text) {
  const auto plain = std::ranges::find_if(text, [](char c) { return static_cast<std::uint8_t>(c) >= 0x80; });
  std::string result(text.begin(), plain);
  text.remove_prefix(result.size());
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    result += length == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result;
}

}  // namespace ulpscope
