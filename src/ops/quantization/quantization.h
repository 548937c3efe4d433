// Scales and zero points of quantized operators.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "ops/common.h"

namespace ulpscope::ops {

using QuantizedTypes = TypeList<std::int8_t, std::uint8_t>;

/// The elements of a small tensor of an 8 to 32 bit integer type.
inline std::vector<std::int32_t> to_int32(const KernelContext& ctx, const Tensor& tensor) {
  std::vector<std::int32_t> result(static_cast<std::size_t>(tensor.size()));
  with_type(TypeList<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t>{}, ctx, tensor.type(),
            [&](auto tag) {
              const auto values = tensor.values<decltype(tag)>();
              std::copy(values.begin(), values.end(), result.begin());
            });
  return result;
}

/// The zero points that an optional input holds; a single 0 when it is absent.
inline std::vector<std::int32_t> zero_points(const KernelContext& ctx, int input) {
  return ctx.has_input(input) ? to_int32(ctx, ctx.input(input)) : std::vector<std::int32_t>{0};
}

/// The same for values of a float type.
inline std::vector<float> float_zero_points(const KernelContext& ctx, int input) {
  if (!ctx.has_input(input)) return {0.0f};
  const auto values = ctx.input(input).values<float>();
  return {values.begin(), values.end()};
}

/// Fails unless input `i` is absent or holds one element, or `count`.
inline void require_count(const KernelContext& ctx, int i, std::int64_t count) {
  if (!ctx.has_input(i) || ctx.input(i).size() == 1 || ctx.input(i).size() == count) return;
  ctx.fail("expected 1 or {} elements as input {}, got {}", count, i, ctx.input(i).size());
}

/// tensor[i] - zero_point, where `zero` holds one number, or one per index of `axis`.
inline std::vector<std::int32_t> centered(const KernelContext& ctx, const Tensor& tensor,
                                          const std::vector<std::int32_t>& zero, std::int64_t axis) {
  std::vector<std::int32_t> values = to_int32(ctx, tensor);
  if (zero.size() == 1) {
    if (zero[0] != 0)
      for (auto& v : values) v -= zero[0];
    return values;
  }
  if (axis < 0 || axis >= tensor.rank() || tensor.shape()[static_cast<std::size_t>(axis)] != std::int64_t(zero.size()))
    ctx.fail("{} zero points do not fit a tensor of shape {}", zero.size(), to_string(tensor.shape()));
  const std::size_t inner =
      static_cast<std::size_t>(product(tensor.shape(), static_cast<std::size_t>(axis) + 1, tensor.shape().size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] -= zero[i / inner % zero.size()];
  return values;
}

/// The scale of all numbers to uint8 by which DynamicQuantizeLinear takes 0 and these numbers; NaN is none of them.
struct DynamicScale {
  float scale;
  std::uint8_t zero;
};
DynamicScale dynamic_scale(std::span<const float> x);
/// The bytes by it.
void quantize_dynamically(std::span<const float> x, const DynamicScale& by, std::uint8_t* out);

/// Rounds to the nearest integer, ties to even, and saturates to [low, high]. NaN becomes 0 plus the zero point.
template <typename T>
T quantize(double value, std::int64_t zero_point, double low = std::numeric_limits<T>::min(),
           double high = std::numeric_limits<T>::max()) {
  if (value != value) value = 0;
  return static_cast<T>(std::clamp(std::nearbyint(value) + static_cast<double>(zero_point), low, high));
}

}  // namespace ulpscope::ops
