// Base64 (RFC 4648, section 4).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ulpscope {

std::string encode_base64(std::string_view bytes);
/// Appends to `out`.
void encode_base64(std::string_view bytes, std::string& out);
/// Nothing when the text is no base64 (a foreign character, a wrong length or padding).
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace ulpscope
