#include "formats/numeric_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ulpscope {
namespace {

using F = Format;
using T = DataType;
using S = Specials;

// format, name, type, float, signed, exponent bits, bias, mantissa bits, specials
constexpr std::array kFormats{
    NumericFormat{F::kFloat32, "fp32", T::kFloat32, true, true, 8, 127, 23, S::kIeee},
    NumericFormat{F::kTF32, "tf32", T::kUndefined, true, true, 8, 127, 10, S::kIeee},
    NumericFormat{F::kFloat16, "fp16", T::kFloat16, true, true, 5, 15, 10, S::kIeee},
    NumericFormat{F::kBFloat16, "bf16", T::kBFloat16, true, true, 8, 127, 7, S::kIeee},
    NumericFormat{F::kFloat8E4M3, "fp8 e4m3fn", T::kFloat8E4M3, true, true, 4, 7, 3, S::kNanOnly},
    NumericFormat{F::kFloat8E4M3Fnuz, "fp8 e4m3fnuz", T::kFloat8E4M3Fnuz, true, true, 4, 8, 3, S::kNanAsZero},
    NumericFormat{F::kFloat8E5M2, "fp8 e5m2", T::kFloat8E5M2, true, true, 5, 15, 2, S::kIeee},
    NumericFormat{F::kFloat8E5M2Fnuz, "fp8 e5m2fnuz", T::kFloat8E5M2Fnuz, true, true, 5, 16, 2, S::kNanAsZero},
    NumericFormat{F::kFloat8E8M0, "fp8 e8m0", T::kFloat8E8M0, true, false, 8, 127, 0, S::kNanOnly},
    NumericFormat{F::kFloat6E2M3, "fp6 e2m3", T::kFloat6E2M3, true, true, 2, 1, 3},
    NumericFormat{F::kFloat6E3M2, "fp6 e3m2", T::kFloat6E3M2, true, true, 3, 3, 2},
    NumericFormat{F::kFloat4E2M1, "fp4 e2m1", T::kFloat4E2M1, true, true, 2, 1, 1},
    NumericFormat{F::kInt32, "int32", T::kInt32, false, true, 0, 0, 31},
    NumericFormat{F::kInt16, "int16", T::kInt16, false, true, 0, 0, 15},
    NumericFormat{F::kUInt16, "uint16", T::kUInt16, false, false, 0, 0, 16},
    NumericFormat{F::kInt8, "int8", T::kInt8, false, true, 0, 0, 7},
    NumericFormat{F::kUInt8, "uint8", T::kUInt8, false, false, 0, 0, 8},
    NumericFormat{F::kInt4, "int4", T::kInt4, false, true, 0, 0, 3},
    NumericFormat{F::kUInt4, "uint4", T::kUInt4, false, false, 0, 0, 4},
    NumericFormat{F::kInt2, "int2", T::kInt2, false, true, 0, 0, 1},
    NumericFormat{F::kUInt2, "uint2", T::kUInt2, false, false, 0, 0, 2},
};

constexpr bool rows_in_order() {
  for (std::size_t i = 0; i < kFormats.size(); ++i)
    if (static_cast<std::size_t>(kFormats[i].id) != i) return false;
  return true;
}
static_assert(rows_in_order());

std::uint32_t largest_code(const NumericFormat& f) noexcept {
  const std::uint32_t ones = f.magnitude_mask();
  switch (f.specials) {
    case Specials::kIeee:
      return ones - (1u << f.mantissa_bits);
    case Specials::kNanOnly:
      return ones - 1;
    default:
      return ones;
  }
}

double infinity() noexcept { return std::numeric_limits<double>::infinity(); }

std::uint32_t encode_integer(const NumericFormat& f, double value) noexcept {
  if (std::isnan(value)) return 0;
  const auto integer = static_cast<std::int64_t>(std::clamp(std::nearbyint(value), f.lowest(), f.largest()));
  return static_cast<std::uint32_t>(integer) & (f.magnitude_mask() | f.sign_bit());
}

std::uint32_t encode_exponent(const NumericFormat& f, double magnitude, Narrowing conversion) noexcept {
  const double smallest = decode(f, 0);
  if (magnitude < smallest) return conversion.saturate ? 0 : f.nan_code();
  const int exponent = std::isinf(magnitude) ? std::numeric_limits<int>::max() / 2 : std::ilogb(magnitude);
  bool up = false;
  if (!std::isinf(magnitude)) {
    const double fraction = std::ldexp(magnitude, -exponent);  // in [1, 2)
    up = conversion.direction == Narrowing::Direction::kUp
             ? fraction > 1
             : conversion.direction == Narrowing::Direction::kNearest && fraction >= 1.5;
  }
  const int code = exponent + int{up} + f.bias;
  const int top = static_cast<int>(largest_code(f));
  if (code <= top) return static_cast<std::uint32_t>(code);
  return conversion.saturate ? static_cast<std::uint32_t>(top) : f.nan_code();
}

}  // namespace

std::uint32_t NumericFormat::nan_code() const noexcept {
  switch (specials) {
    case Specials::kIeee:
      return magnitude_mask() - (1u << mantissa_bits) + 1 + (1u << (mantissa_bits - 1));  // quiet
    case Specials::kNanAsZero:
      return sign_bit();
    default:
      return magnitude_mask();
  }
}

double NumericFormat::largest() const noexcept {
  return is_float ? decode(*this, largest_code(*this)) : static_cast<double>(magnitude_mask());
}

double NumericFormat::lowest() const noexcept {
  if (!is_float) return is_signed ? -static_cast<double>(magnitude_mask()) - 1 : 0;
  return is_signed ? -largest() : decode(*this, 0);
}

const NumericFormat& format_of(Format id) noexcept { return kFormats[static_cast<std::size_t>(id)]; }

const NumericFormat* format_of(DataType type) noexcept {
  if (type == DataType::kUndefined) return nullptr;
  const auto* found = std::ranges::find(kFormats, type, &NumericFormat::type);
  return found == kFormats.end() ? nullptr : found;
}

std::span<const NumericFormat> numeric_formats() noexcept { return kFormats; }

double decode(const NumericFormat& f, std::uint32_t code) noexcept {
  const std::uint32_t magnitude = code & f.magnitude_mask();
  const bool negative = (code & f.sign_bit()) != 0;
  if (!f.is_float) return static_cast<double>(magnitude) - (negative ? f.magnitude_mask() + 1.0 : 0.0);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  double value;
  if (f.is_exponent_only()) {
    value = magnitude > largest_code(f) ? nan : std::ldexp(1.0, static_cast<int>(magnitude) - f.bias);
  } else if (f.specials == Specials::kNanAsZero && negative && magnitude == 0) {
    return nan;
  } else if (magnitude > largest_code(f)) {
    value = f.has_infinity() && (magnitude & ((1u << f.mantissa_bits) - 1)) == 0 ? infinity() : nan;
  } else {
    const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
    const std::uint32_t fraction = magnitude & ((1u << f.mantissa_bits) - 1);
    const std::uint32_t significand = exponent == 0 ? fraction : fraction | 1u << f.mantissa_bits;
    value = std::ldexp(static_cast<double>(significand), std::max(exponent, 1) - f.bias - f.mantissa_bits);
  }
  return negative ? -value : value;
}

std::uint32_t encode(const NumericFormat& f, double value, Narrowing conversion) noexcept {
  if (!f.is_float) return encode_integer(f, value);
  const std::uint32_t sign = std::signbit(value) ? f.sign_bit() : 0;
  if (std::isnan(value))
    return !f.has_nan() ? f.sign_bit() : f.nan_code() | (f.specials == Specials::kNanAsZero ? 0 : sign);
  const double magnitude = std::fabs(value);
  if (f.is_exponent_only()) return encode_exponent(f, magnitude, conversion);
  double rounded = magnitude;
  if (std::isfinite(magnitude) && magnitude != 0) {
    const int exponent = std::max(std::ilogb(magnitude), f.min_exponent());
    rounded = std::ldexp(std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent)), exponent - f.mantissa_bits);
  }
  if (rounded == 0) return f.specials == Specials::kNanAsZero ? 0 : sign;
  if (rounded > f.largest()) {
    if (conversion.saturate || !f.has_nan()) return sign | largest_code(f);
    if (f.has_infinity()) return sign | (largest_code(f) + 1);
    return f.nan_code() | (f.specials == Specials::kNanAsZero ? 0 : sign);
  }
  const int exponent = std::max(std::ilogb(rounded), f.min_exponent());
  const auto significand = static_cast<std::uint32_t>(std::ldexp(rounded, f.mantissa_bits - exponent));
  // A subnormal has no leading one, which is what the exponent field counts from.
  return sign | (significand + (static_cast<std::uint32_t>(exponent - f.min_exponent()) << f.mantissa_bits));
}

bool holds(const NumericFormat& wide, const NumericFormat& narrow) noexcept {
  const auto smallest = [](const NumericFormat& f) {
    return f.is_exponent_only() ? f.min_exponent() : f.min_exponent() - f.mantissa_bits;
  };
  return wide.is_float && narrow.is_float && wide.mantissa_bits >= narrow.mantissa_bits &&
         wide.largest() >= narrow.largest() && smallest(wide) <= smallest(narrow) &&
         (wide.has_infinity() || !narrow.has_infinity()) && (wide.has_nan() || !narrow.has_nan()) &&
         (narrow.is_exponent_only() || !wide.is_exponent_only());
}

}  // namespace ulpscope
