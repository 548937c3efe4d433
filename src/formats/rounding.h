// Rounding of float32 to narrower floats, to nearest with ties to even (IEEE 754-2019, 4.3.1). Overflow goes to
// infinity unless it is asked to saturate, subnormals are kept, NaN stays NaN. The narrow value is held in a float32.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "formats/numeric_format.h"
#include "ulpscope/data_type.h"

namespace ulpscope {

/// Bits of binary16 for a float32 value.
inline std::uint16_t f16_bits(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x200u : 0u));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (magnitude <
      0x38800000u) {  // below 2^-14: subnormal; adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

/// The float32 value of binary16 bits.
inline float f16_value(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

/// Keeps `kept` of the 23 fraction bits. For formats with the exponent range of float32 (bfloat16: 7, tf32: 10).
template <int kept>
float round_fraction(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return std::bit_cast<float>(bits | 0x00400000u);  // NaN, made quiet
  constexpr int kDropped = 23 - kept;
  const std::uint32_t rounded = bits + ((1u << (kDropped - 1)) - 1u) + ((bits >> kDropped) & 1u);
  return std::bit_cast<float>(rounded & ~((1u << kDropped) - 1u));
}

inline float round_to_f16(float value) noexcept { return f16_value(f16_bits(value)); }
inline float round_to_bf16(float value) noexcept { return round_fraction<7>(value); }
inline float round_to_tf32(float value) noexcept { return round_fraction<10>(value); }

inline std::uint16_t bf16_bits(float value) noexcept {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(round_to_bf16(value)) >> 16);
}
inline float bf16_value(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Rounds a double to float32 "to odd": a second rounding of the result to a narrower format is then correct
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
float round_to_odd(double value) noexcept;

/// How values are rounded on their way into or out of a layer: a float format, and whether overflow saturates
/// (`saturating`). The names are those of the formats that layers compute in; kNone changes nothing.
enum class Rounding : std::uint8_t {
  kNone = static_cast<std::uint8_t>(Format::kFloat32),
  kF16 = static_cast<std::uint8_t>(Format::kFloat16),
  kBF16 = static_cast<std::uint8_t>(Format::kBFloat16),
  kTF32 = static_cast<std::uint8_t>(Format::kTF32),
};

inline constexpr std::uint8_t kSaturateBit = 0x80;
constexpr Rounding rounding_to(Format format, bool saturate = false) noexcept {
  return static_cast<Rounding>(static_cast<std::uint8_t>(format) | (saturate ? kSaturateBit : 0));
}
constexpr Format format_of(Rounding rounding) noexcept {
  return static_cast<Format>(static_cast<std::uint8_t>(rounding) & ~kSaturateBit);
}
constexpr bool saturates(Rounding rounding) noexcept {
  return (static_cast<std::uint8_t>(rounding) & kSaturateBit) != 0;
}

/// What a layer's store into `type` does to a float32 value. kNone for types that only hold values: what makes those
/// (Cast, QuantizeLinear) rounds by itself, as its attributes say.
Rounding rounding_of(DataType type) noexcept;
/// The type in whose elements it leaves no more than that does: float16, bfloat16, or kUndefined.
DataType narrow_type(Rounding rounding) noexcept;

float round_value(float value, Rounding rounding) noexcept;

/// out[i] = round(in[i]); `in` may equal `out`. One pass, on one thread; at memory speed for fp16, bf16 and tf32.
void round_array(const float* in, float* out, std::size_t count, Rounding rounding) noexcept;

/// out[i] = decode(encode(in[i])) for a float format: as above, with the directions of E8M0.
void round_array(const float* in, float* out, std::size_t count, const NumericFormat& format,
                 Narrowing conversion) noexcept;

/// out[i] = f16_bits(in[i]), and the reverse.
void narrow_to_f16(const float* in, std::uint16_t* out, std::size_t count) noexcept;
void widen_f16(const std::uint16_t* in, float* out, std::size_t count) noexcept;
/// out[i] = bf16_bits(in[i]).
void narrow_to_bf16(const float* in, std::uint16_t* out, std::size_t count) noexcept;

/// out[i] = in[i] / scale, to the nearest integer with ties to even, clamped to [low, high]; NaN gives 0. The integers
/// are held in float32. `dequantize`: times scale again. `in` may equal `out`. REQUIRES: |low|, |high| < 2^22.
void quantize_array(const float* in, float* out, std::size_t count, float scale, float low, float high,
                    bool dequantize) noexcept;
/// The integers as bytes: int8, or uint8 where low is 0.
void quantize_bytes(const float* in, std::uint8_t* out, std::size_t count, float scale, float low, float high) noexcept;
/// As quantize_array with a scale per element, integers only.
void quantize_columns(const float* in, float* out, std::size_t count, const float* scales, float low,
                      float high) noexcept;
/// largest[i] = max(largest[i], |in[i]|); NaN is left out.
void max_magnitudes(const float* in, float* largest, std::size_t count) noexcept;

}  // namespace ulpscope
