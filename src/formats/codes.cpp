#include "formats/codes.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "formats/rounding.h"

namespace ulpscope {
namespace {

std::uint32_t code_mask(const NumericFormat& format) noexcept { return format.magnitude_mask() | format.sign_bit(); }

/// The code of a float32 that the format holds. For formats with a sign and less exponent bits than float32.
std::uint32_t code_of(const NumericFormat& f, float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value), magnitude = bits & 0x7fffffffu;
  const std::uint32_t sign = bits >> 31 != 0 ? f.sign_bit() : 0;
  if (magnitude >= 0x7f800000u) return encode(f, static_cast<double>(value), {});
  const int smallest = f.min_exponent();
  if (magnitude < static_cast<std::uint32_t>(smallest + 127) << 23)
    return sign | static_cast<std::uint32_t>(
                      std::fabs(value) *
                      std::bit_cast<float>(static_cast<std::uint32_t>(127 - smallest + f.mantissa_bits) << 23));
  return sign | ((magnitude >> (23 - f.mantissa_bits)) - (static_cast<std::uint32_t>(127 - f.bias) << f.mantissa_bits));
}

using Values = std::array<float, 256>;

/// The values of all bytes, per format of the table.
const Values& values_of(const NumericFormat& format) noexcept {
  static const std::vector<Values> all = [] {
    std::vector<Values> result(numeric_formats().size());
    for (const NumericFormat& f : numeric_formats())
      for (std::uint32_t code = 0; code < 256; ++code)
        result[static_cast<std::size_t>(f.id)][code] = static_cast<float>(decode(f, code));
    return result;
  }();
  return all[static_cast<std::size_t>(format.id)];
}

}  // namespace

void encode_array(const NumericFormat& format, const float* in, std::uint8_t* out, std::size_t count,
                  Narrowing conversion) noexcept {
  if (format.is_exponent_only()) {
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<std::uint8_t>(encode(format, static_cast<double>(in[i]), conversion));
    return;
  }
  Values rounded;
  for (std::size_t at = 0; at < count; at += rounded.size()) {
    const std::size_t piece = std::min(rounded.size(), count - at);
    round_array(in + at, rounded.data(), piece, format, conversion);
    for (std::size_t i = 0; i < piece; ++i) out[at + i] = static_cast<std::uint8_t>(code_of(format, rounded[i]));
  }
}

void decode_array(const NumericFormat& format, const std::uint8_t* in, float* out, std::size_t count) noexcept {
  const Values& values = values_of(format);
  for (std::size_t i = 0; i < count; ++i) out[i] = values[in[i]];
}

void wrap_array(const NumericFormat& format, const std::int8_t* in, std::uint8_t* out, std::size_t count) noexcept {
  const std::uint32_t mask = code_mask(format);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(static_cast<std::uint8_t>(in[i]) & mask);
}

void unwrap_array(const NumericFormat& format, const std::uint8_t* in, std::int8_t* out, std::size_t count) noexcept {
  const std::uint32_t mask = code_mask(format), sign = format.sign_bit();
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::int8_t>(((in[i] & mask) ^ sign) - sign);
}

void pack(const NumericFormat& format, const std::uint8_t* codes, std::size_t count, std::uint8_t* out) noexcept {
  const auto bits = static_cast<std::size_t>(format.bits());
  std::fill_n(out, packed_bytes(format, count), std::uint8_t{0});
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t code = codes[i] & code_mask(format);
    const std::size_t byte = i * bits / 8, offset = i * bits % 8;
    out[byte] = static_cast<std::uint8_t>(out[byte] | code << offset);
    if (offset + bits > 8) out[byte + 1] = static_cast<std::uint8_t>(code >> (8 - offset));
  }
}

void unpack(const NumericFormat& format, const std::uint8_t* packed, std::size_t count, std::uint8_t* out) noexcept {
  const auto bits = static_cast<std::size_t>(format.bits());
  std::size_t i = 0;
  if (bits == 4)  // weights of many gigabytes have it: a loop that is compiled to vectors
    for (; i + 2 <= count; i += 2) {
      out[i] = packed[i / 2] & 15;
      out[i + 1] = static_cast<std::uint8_t>(packed[i / 2] >> 4);
    }
  for (; i < count; ++i) {
    const std::size_t byte = i * bits / 8, offset = i * bits % 8;
    std::uint32_t code = static_cast<std::uint32_t>(packed[byte]) >> offset;
    if (offset + bits > 8) code |= static_cast<std::uint32_t>(packed[byte + 1]) << (8 - offset);
    out[i] = static_cast<std::uint8_t>(code & code_mask(format));
  }
}

}  // namespace ulpscope
