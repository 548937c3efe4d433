// Number formats: which values a few bits can hold. One row per format; everything else about them follows from it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "ulpscope/data_type.h"

namespace ulpscope {

/// The rows of the table, in its order.
enum class Format : std::uint8_t {
  kFloat32,
  kTF32,
  kFloat16,
  kBFloat16,
  kFloat8E4M3,
  kFloat8E4M3Fnuz,
  kFloat8E5M2,
  kFloat8E5M2Fnuz,
  kFloat8E8M0,
  kFloat6E2M3,
  kFloat6E3M2,
  kFloat4E2M1,
  kInt32,
  kInt16,
  kUInt16,
  kInt8,
  kUInt8,
  kInt4,
  kUInt4,
  kInt2,
  kUInt2,
};

/// Which codes are not finite numbers.
enum class Specials : std::uint8_t {
  kIeee,       ///< The largest exponent: infinities (fraction 0) and NaN.
  kNanOnly,    ///< All ones is NaN; no infinities ("fn").
  kNanAsZero,  ///< The code of -0 is NaN; no infinities, no -0 ("fnuz").
  kNone,       ///< Every code is a number.
};

/// What happens to values that a float format does not hold.
struct Narrowing {
  enum class Direction : std::uint8_t { kNearest, kUp, kDown };
  /// What is too large, infinities too, becomes the largest value instead of an infinity or, where there is none, NaN.
  /// Formats without NaN saturate always.
  bool saturate = false;
  /// Of float8 E8M0 alone: to nearest (ties go up), away from 0, or toward 0. All others round to nearest, ties to
  /// even.
  Direction direction = Direction::kNearest;
};

/// A sign (if any), exponent bits and mantissa bits, from the highest to the lowest bit of a code; or an integer in
/// two's complement. A float format without sign and mantissa holds powers of two and no 0 (OCP MX: E8M0).
struct NumericFormat {
  Format id;
  std::string_view name;
  DataType type;  ///< Whose elements have it; kUndefined: no tensor is stored in it (tf32).
  bool is_float, is_signed;
  int exponent_bits, bias, mantissa_bits;  ///< Integers: all but the sign are mantissa bits.
  Specials specials = Specials::kNone;

  constexpr int bits() const noexcept { return int{is_signed} + exponent_bits + mantissa_bits; }
  constexpr bool is_exponent_only() const noexcept { return is_float && mantissa_bits == 0; }
  /// The exponent of the smallest normal value; below, values are multiples of 2^(min_exponent - mantissa_bits).
  constexpr int min_exponent() const noexcept { return (is_exponent_only() ? 0 : 1) - bias; }
  constexpr bool has_infinity() const noexcept { return specials == Specials::kIeee; }
  constexpr bool has_nan() const noexcept { return specials != Specials::kNone; }
  constexpr std::uint32_t magnitude_mask() const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{1} << (exponent_bits + mantissa_bits)) - 1);
  }
  /// 0 for formats without a sign.
  constexpr std::uint32_t sign_bit() const noexcept { return is_signed ? magnitude_mask() + 1 : 0; }
  /// The code that conversions give to NaN (of positive sign). REQUIRES: has_nan().
  std::uint32_t nan_code() const noexcept;
  /// The largest finite value, and the most negative one.
  double largest() const noexcept;
  double lowest() const noexcept;
};

const NumericFormat& format_of(Format id) noexcept;
/// Null for types of tensors without a row: float64, 32 and 64 bit integers but int32, bool.
const NumericFormat* format_of(DataType type) noexcept;
std::span<const NumericFormat> numeric_formats() noexcept;

/// The value of a code, exact. Bits above those of the format are ignored.
double decode(const NumericFormat& format, std::uint32_t code) noexcept;

/// The code of the nearest value. NaN becomes NaN of the same sign (kNanAsZero has one NaN); in float formats without
/// NaN, -0, as in ONNX's tests; in integers, 0. Integers always saturate. E8M0 looks at magnitudes; without saturation
/// what is below its smallest value is NaN.
std::uint32_t encode(const NumericFormat& format, double value, Narrowing conversion) noexcept;

/// True when every value of `narrow` is one of `wide`, both floats.
bool holds(const NumericFormat& wide, const NumericFormat& narrow) noexcept;

}  // namespace ulpscope
