// Arrays of codes of formats with 8 bits and less: one code per byte in memory, packed in files.
#pragma once

#include <cstddef>
#include <cstdint>

#include "formats/numeric_format.h"

namespace ulpscope {

/// out[i] = encode(in[i]), for a float format.
void encode_array(const NumericFormat& format, const float* in, std::uint8_t* out, std::size_t count,
                  Narrowing conversion) noexcept;
/// out[i] = decode(in[i]), for a float format.
void decode_array(const NumericFormat& format, const std::uint8_t* in, float* out, std::size_t count) noexcept;

/// The codes of integers: their low bits, and what those mean. `in` may equal `out`.
void wrap_array(const NumericFormat& format, const std::int8_t* in, std::uint8_t* out, std::size_t count) noexcept;
void unwrap_array(const NumericFormat& format, const std::uint8_t* in, std::int8_t* out, std::size_t count) noexcept;

/// Bytes that `count` codes take when they are packed.
constexpr std::size_t packed_bytes(const NumericFormat& format, std::size_t count) noexcept {
  return (count * static_cast<std::size_t>(format.bits()) + 7) / 8;
}

/// ONNX's packing: a stream of bits in which a code starts at the lowest free bit of a byte (4 bits: the first of two
/// codes in the low nibble). What is left over in the last byte is 0.
void pack(const NumericFormat& format, const std::uint8_t* codes, std::size_t count, std::uint8_t* out) noexcept;
void unpack(const NumericFormat& format, const std::uint8_t* packed, std::size_t count, std::uint8_t* out) noexcept;

}  // namespace ulpscope
