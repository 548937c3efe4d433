// Elements of every type in memory, as numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "formats/numeric_format.h"
#include "formats/rounding.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda::elements {

/// The distance between neighbors of a float type at this number, and of its subnormals below the normal ones.
inline double unit_at(DataType type, double value) {
  const int digits = type == DataType::kFloat16 ? 11 : type == DataType::kBFloat16 ? 8 : 24;
  const int least = type == DataType::kFloat16 ? -14 : -126;
  return std::ldexp(1.0, (value == 0 ? least : std::max(std::ilogb(value), least)) - digits + 1);
}

template <typename T>
T bits_at(const unsigned char* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}
template <typename T>
void put_bits(unsigned char* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

/// Calls `f` with a value of the C++ type of integers and bool.
template <typename F>
auto with_integer(DataType type, F f) {
  switch (type) {
    case DataType::kInt8:
      return f(std::int8_t{});
    case DataType::kUInt8:
      return f(std::uint8_t{});
    case DataType::kInt16:
      return f(std::int16_t{});
    case DataType::kUInt16:
      return f(std::uint16_t{});
    case DataType::kInt32:
      return f(std::int32_t{});
    case DataType::kUInt32:
      return f(std::uint32_t{});
    case DataType::kInt64:
      return f(std::int64_t{});
    case DataType::kUInt64:
      return f(std::uint64_t{});
    default:
      return f(false);
  }
}

inline double read(DataType type, const unsigned char* p) {
  if (type == DataType::kFloat8E4M3) return decode(*format_of(type), *p);
  if (type == DataType::kFloat32) return static_cast<double>(bits_at<float>(p));
  if (type == DataType::kFloat16) return static_cast<double>(f16_value(bits_at<std::uint16_t>(p)));
  if (type == DataType::kBFloat16) return static_cast<double>(bf16_value(bits_at<std::uint16_t>(p)));
  return with_integer(type, [p](auto zero) { return static_cast<double>(bits_at<decltype(zero)>(p)); });
}

inline void write(DataType type, unsigned char* p, double value) {
  if (type == DataType::kFloat8E4M3) {
    *p = static_cast<unsigned char>(encode(*format_of(type), value, {.saturate = true}));
    return;
  }
  if (type == DataType::kFloat32) return put_bits(p, static_cast<float>(value));
  if (type == DataType::kFloat16) return put_bits(p, f16_bits(static_cast<float>(value)));
  if (type == DataType::kBFloat16) return put_bits(p, bf16_bits(static_cast<float>(value)));
  with_integer(type, [p, value](auto zero) { put_bits(p, static_cast<decltype(zero)>(value)); });
}

}  // namespace ulpscope::cuda::elements
