#include "formats/convert.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/element_types.h"
#include "core/messages.h"
#include "core/vector_clones.h"
#include "formats/codes.h"
#include "formats/rounding.h"
#include "ulpscope/tensor.h"

namespace ulpscope {
namespace {

// Storage of the narrow floats, so that they are types of their own in the templates below.
struct F16 {
  std::uint16_t bits;
};
struct BF16 {
  std::uint16_t bits;
};
/// A float32 that a rounding to a narrower type follows.
struct OddFloat {
  float value;
};

template <typename T>
constexpr bool kNarrow = std::is_same_v<T, F16> || std::is_same_v<T, BF16>;

template <typename T>
auto widen(T value) noexcept {
  if constexpr (std::is_same_v<T, F16>)
    return f16_value(value.bits);
  else if constexpr (std::is_same_v<T, BF16>)
    return bf16_value(value.bits);
  else
    return value;
}

template <typename From>
float to_single_before_narrow(From value) noexcept {
  if constexpr (std::is_same_v<From, float>)
    return value;
  else if constexpr (std::is_same_v<From, double>)
    return round_to_odd(value);
  else if constexpr (sizeof(From) == 8) {
    // A double holds 53 bits: above them, fold the low bits into a sticky bit, so that no rounding happens here.
    constexpr From kLow = 0x7ff;
    const bool fits = value <= From{1} << 53 && (std::is_unsigned_v<From> || value >= -(From{1} << 53));
    return round_to_odd(
        static_cast<double>(fits ? value : static_cast<From>((value & ~kLow) | ((value & kLow) != 0 ? 0x400 : 0))));
  } else
    return round_to_odd(static_cast<double>(value));
}

template <typename To, typename From>
To convert_one(From from) noexcept {
  const auto value = widen(from);
  using Value = std::remove_const_t<decltype(value)>;
  if constexpr (std::is_same_v<To, F16>)
    return {f16_bits(to_single_before_narrow(value))};
  else if constexpr (std::is_same_v<To, BF16>)
    return {bf16_bits(to_single_before_narrow(value))};
  else if constexpr (std::is_same_v<To, OddFloat>)
    return {to_single_before_narrow(value)};
  else if constexpr (std::is_same_v<To, bool>)
    return value != Value{0};
  else if constexpr (std::is_floating_point_v<Value> && std::is_same_v<To, std::uint64_t>) {
    // As x86 does it from 2^63 on: less 2^63, through int64, plus 2^63, modulo 2^64.
    if (value >= static_cast<Value>(0x1p63)) return value < static_cast<Value>(0x1p64) ? static_cast<To>(value) : 0;
    return static_cast<To>(convert_one<std::int64_t>(value));
  } else if constexpr (std::is_floating_point_v<Value> && std::is_integral_v<To>) {
    // Through int64 as x86 does it: outside of its range the "integer indefinite" value, without undefined behavior.
    const bool inside = value >= static_cast<Value>(-0x1p63) && value < static_cast<Value>(0x1p63);
    return static_cast<To>(inside ? static_cast<std::int64_t>(value) : INT64_MIN);
  } else
    return static_cast<To>(value);
}

template <typename To, typename From>
void convert_array(const void* in, void* out, std::size_t count) noexcept {
  const From* source = static_cast<const From*>(in);
  To* target = static_cast<To*>(out);
  for (std::size_t i = 0; i < count; ++i) target[i] = convert_one<To>(source[i]);
}

/// In all of them a conversion through int64 is one to int32, which vectors have.
template <typename From>
ULPSCOPE_VECTOR_CLONES bool fit_32_bits(const From* values, std::size_t count) noexcept {
  using Flag = std::conditional_t<sizeof(From) == 4, std::int32_t, std::int64_t>;  // As compilers vectorize it.
  Flag inside = -1;
  for (std::size_t i = 0; i < count; ++i) {
    inside &= -static_cast<Flag>(values[i] >= static_cast<From>(-0x1p31));
    inside &= -static_cast<Flag>(values[i] < static_cast<From>(0x1p31));
  }
  return inside != 0;
}

template <typename To, typename From>
ULPSCOPE_VECTOR_CLONES void truncate_to_32_bits(const From* source, To* target, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) target[i] = static_cast<To>(static_cast<std::int32_t>(source[i]));
}

/// convert_array() of floats to integers.
template <typename To, typename From>
void truncate_array(const void* in, void* out, std::size_t count) noexcept {
  constexpr std::size_t kSome = 512;  // What does not fit has few neighbors that wait for it.
  const From* source = static_cast<const From*>(in);
  To* target = static_cast<To*>(out);
  for (std::size_t at = 0; at < count; at += kSome, source += kSome, target += kSome) {
    const std::size_t some = std::min(kSome, count - at);
    if (fit_32_bits(source, some))
      truncate_to_32_bits(source, target, some);
    else
      convert_array<To, From>(source, target, some);
  }
}

/// convert_array() of floats to bool.
template <typename From>
ULPSCOPE_VECTOR_CLONES void compare_with_zero(const From* source, std::uint8_t* target, std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) target[i] = static_cast<std::uint8_t>(source[i] != From{0});
}

/// Calls `function` with a value-initialized object of the storage type of `type`.
template <typename Function>
void with_storage(DataType type, Function&& function) {
  if (type == DataType::kFloat16) return function(F16{});
  if (type == DataType::kBFloat16) return function(BF16{});
  if (!visit_type(AllTypes{}, type, function))
    throw unsupported("conversion of elements of type {} is not supported", name_of(type));
}

/// A piece of an array on its way, in the type that holds its values.
constexpr std::size_t kPiece = 1024;
struct Piece {
  alignas(float) std::byte bytes[kPiece * sizeof(float)];
  template <typename T>
  T* as() noexcept {
    return reinterpret_cast<T*>(bytes);
  }
};

/// From the codes of a format with 8 bits or less.
void convert_from_codes(const NumericFormat& format, const std::uint8_t* in, DataType to, std::byte* out,
                        std::size_t count, Narrowing conversion) {
  Piece values;
  const DataType physical = physical_type(format.type);
  for (std::size_t at = 0; at < count; at += kPiece) {
    const std::size_t size = std::min(kPiece, count - at);
    if (format.is_float)
      decode_array(format, in + at, values.as<float>(), size);
    else
      unwrap_array(format, in + at, values.as<std::int8_t>(), size);
    convert_elements(physical, values.bytes, to, out + at * size_of(to), size, conversion);
  }
}

void convert_to_codes(DataType from, const std::byte* in, const NumericFormat& format, std::uint8_t* out,
                      std::size_t count, Narrowing conversion) {
  Piece values;
  for (std::size_t at = 0; at < count; at += kPiece) {
    const std::size_t size = std::min(kPiece, count - at);
    const std::byte* source = in + at * size_of(from);
    if (format.is_float) {
      with_storage(from, [&](auto tag) { convert_array<OddFloat, decltype(tag)>(source, values.bytes, size); });
      encode_array(format, values.as<float>(), out + at, size, conversion);
    } else {
      convert_elements(from, source, physical_type(format.type), values.bytes, size);
      wrap_array(format, values.as<std::int8_t>(), out + at, size);
    }
  }
}

}  // namespace

void convert_elements(DataType from, const void* in, DataType to, void* out, std::size_t count, Narrowing conversion) {
  if (from == to) {
    if (count != 0) std::memcpy(out, in, count * size_of(from));
    return;
  }
  if (from == DataType::kFloat32 && to == DataType::kFloat16)
    return narrow_to_f16(static_cast<const float*>(in), static_cast<std::uint16_t*>(out), count);
  if (from == DataType::kFloat32 && to == DataType::kBFloat16)
    return narrow_to_bf16(static_cast<const float*>(in), static_cast<std::uint16_t*>(out), count);
  if (from == DataType::kFloat16 && to == DataType::kFloat32)
    return widen_f16(static_cast<const std::uint16_t*>(in), static_cast<float*>(out), count);
  if (is_storage_only(from))
    return convert_from_codes(*format_of(from), static_cast<const std::uint8_t*>(in), to, static_cast<std::byte*>(out),
                              count, conversion);
  if (is_storage_only(to))
    return convert_to_codes(from, static_cast<const std::byte*>(in), *format_of(to), static_cast<std::uint8_t*>(out),
                            count, conversion);
  with_storage(from, [&]<typename From>(From) {
    with_storage(to, [&]<typename To>(To) {
      if constexpr (std::is_same_v<From, bool>)
        convert_array<To, std::uint8_t>(in, out, count);  // Compilers have vectors of bytes, none of booleans.
      else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To> && !std::is_same_v<To, bool>)
        truncate_array<To, From>(in, out, count);
      else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, bool>)
        compare_with_zero(static_cast<const From*>(in), static_cast<std::uint8_t*>(out), count);
      else
        convert_array<To, From>(in, out, count);
    });
  });
}

Tensor Tensor::cast(DataType type) const {
  if (type == type_) return clone();
  Tensor result(type, shape_);
  convert_elements(type_, in_memory().raw(), type, result.data_, static_cast<std::size_t>(size_));
  return result;
}

}  // namespace ulpscope
