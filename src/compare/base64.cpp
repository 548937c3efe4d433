#include "compare/base64.h"

#include <array>
#include <cstdint>

namespace ulpscope {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::uint8_t kForeign = 64;

constexpr std::array<std::uint8_t, 256> inverse() {
  std::array<std::uint8_t, 256> table{};
  for (std::uint8_t& entry : table) entry = kForeign;
  for (std::size_t i = 0; i < kAlphabet.size(); ++i)
    table[static_cast<std::uint8_t>(kAlphabet[i])] = static_cast<std::uint8_t>(i);
  return table;
}

constexpr std::array<std::uint8_t, 256> kInverse = inverse();

}  // namespace

void encode_base64(std::string_view bytes, std::string& out) {
  const auto* in = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const std::size_t begin = out.size();
  out.resize(begin + (bytes.size() + 2) / 3 * 4);
  char* to = out.data() + begin;
  std::size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    const std::uint32_t group = static_cast<std::uint32_t>(in[i] << 16 | in[i + 1] << 8 | in[i + 2]);
    for (int shift = 18; shift >= 0; shift -= 6) *to++ = kAlphabet[(group >> shift) & 63];
  }
  const std::size_t rest = bytes.size() - i;
  if (rest == 0) return;
  const std::uint32_t group = static_cast<std::uint32_t>(in[i] << 16 | (rest == 2 ? in[i + 1] << 8 : 0));
  *to++ = kAlphabet[(group >> 18) & 63];
  *to++ = kAlphabet[(group >> 12) & 63];
  *to++ = rest == 2 ? kAlphabet[(group >> 6) & 63] : '=';
  *to++ = '=';
}

std::string encode_base64(std::string_view bytes) {
  std::string result;
  encode_base64(bytes, result);
  return result;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  text.remove_suffix(padding);
  std::string result(text.size() * 3 / 4, '\0');
  char* to = result.data();
  std::uint32_t group = 0;
  std::uint8_t foreign = 0;
  std::size_t i = 0;
  for (; i + 4 <= text.size(); i += 4) {
    const auto at = [&](std::size_t k) { return kInverse[static_cast<std::uint8_t>(text[i + k])]; };
    foreign |= static_cast<std::uint8_t>((at(0) | at(1) | at(2) | at(3)) & kForeign);
    group = static_cast<std::uint32_t>(at(0) << 18 | at(1) << 12 | at(2) << 6 | at(3));
    *to++ = static_cast<char>(group >> 16);
    *to++ = static_cast<char>(group >> 8);
    *to++ = static_cast<char>(group);
  }
  if (i < text.size()) {
    group = 0;
    const std::size_t rest = text.size() - i;
    for (std::size_t k = 0; k < rest; ++k) {
      const std::uint8_t value = kInverse[static_cast<std::uint8_t>(text[i + k])];
      foreign |= static_cast<std::uint8_t>(value & kForeign);
      group |= static_cast<std::uint32_t>(value) << (18 - 6 * k);
    }
    *to++ = static_cast<char>(group >> 16);
    if (rest == 3) *to++ = static_cast<char>(group >> 8);
  }
  if (foreign != 0) return std::nullopt;
  return result;
}

}  // namespace ulpscope
