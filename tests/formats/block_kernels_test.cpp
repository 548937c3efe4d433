// Blocks with every kind of number, bit by bit against the definition of one element.
#include "formats/block_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/instruction_set.h"
#include "formats/quantized_blocks.h"

namespace ulpscope::testing {
namespace {

enum class Numbers { kOrdinary, kAnyBits, kSpecial, kZeros, kSubnormal, kAllExponents };
constexpr Numbers kAllNumbers[] = {Numbers::kOrdinary, Numbers::kAnyBits,   Numbers::kSpecial,
                                   Numbers::kZeros,    Numbers::kSubnormal, Numbers::kAllExponents};

/// NaN has any sign, and any payload.
float draw(Numbers numbers, std::mt19937& random) {
  const auto bits = static_cast<std::uint32_t>(random());
  const float ordinary = std::normal_distribution<float>(0, 3)(random);
  const float signed_zero = (bits & 1) != 0 ? 0.0f : -0.0f;
  switch (numbers) {
    case Numbers::kOrdinary:
      return ordinary;
    case Numbers::kAnyBits:
      return std::bit_cast<float>(bits);
    case Numbers::kSpecial:
      if (bits % 5 == 0) return std::copysign(std::numeric_limits<float>::infinity(), ordinary);
      if (bits % 5 == 1) return std::bit_cast<float>(bits | 0x7fc00000u);
      return bits % 5 == 2 ? signed_zero : ordinary;
    case Numbers::kZeros:
      return signed_zero;
    case Numbers::kSubnormal:
      return std::bit_cast<float>(bits & 0x80ffffffu);
    case Numbers::kAllExponents:
      return std::ldexp(ordinary, static_cast<int>(bits % 250) - 125);
  }
  return 0;
}

/// The scale of a block, as docs/numerics.md has it.
float scale_of(const Encoding& encoding, float largest, float second) {
  const double top = format_of(encoding.format).largest();
  if (encoding.scale == Format::kFloat8E8M0) {
    const bool down = encoding.rule == BlockScale::kLargestRoundedDown;
    if (largest == 0) return 0x1p-127f;
    if (std::isinf(largest)) return 0x1p127f;
    const float quotient = largest / static_cast<float>(top);
    int exponent = down ? std::ilogb(largest) - std::ilogb(top) : std::ilogb(quotient);
    if (!down && quotient == 0) exponent = -127;
    if (!down && quotient > std::ldexp(1.0f, exponent)) ++exponent;
    return std::ldexp(1.0f, std::clamp(exponent, -127, 127));
  }
  if (largest == 0) return 1;
  const float scale = largest / (static_cast<float>(top) * second);
  const NumericFormat& format = format_of(encoding.scale);
  return static_cast<float>(decode(format, encode(format, static_cast<double>(scale), {.saturate = true})));
}

/// NaN keeps its sign and payload.
float value_of(const NumericFormat& format, float x, float by) {
  const float quotient = by == 0 ? x * 0 : x / by;
  if (std::isnan(quotient)) return quotient * by;
  return static_cast<float>(decode(format, encode(format, static_cast<double>(quotient), {.saturate = true}))) * by;
}

void expect_definition(const Encoding& encoding, const Shape& shape, Numbers numbers, float second) {
  std::mt19937 random(static_cast<std::uint32_t>(numbers) + 1);
  Tensor values(DataType::kFloat32, shape), made(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < values.size(); ++i) values.data<float>()[i] = draw(numbers, random);
  const ScaleLayout layout(encoding, shape);
  std::vector<float> largest(static_cast<std::size_t>(num_elements(layout.scales)), 0.0f);
  for (std::int64_t i = 0; i < values.size(); ++i) {
    float& known = largest[static_cast<std::size_t>(layout.index(i))];
    if (const float m = std::fabs(values.data<float>()[i]); m > known) known = m;
  }
  quantize_activation(encoding, layout, values, second, made.data<float>(), true);
  const float used = encoding.second_scale ? second : 1;
  std::vector<float> scales;
  for (const float each : largest) scales.push_back(scale_of(encoding, each, used) * used);
  const auto bits = [](const Tensor& tensor, std::int64_t i) {
    return std::bit_cast<std::uint32_t>(tensor.data<float>()[i]);
  };
  for (std::int64_t i = 0; i < values.size(); ++i) {
    const float scale = scales[static_cast<std::size_t>(layout.index(i))], x = values.data<float>()[i];
    const float wanted = value_of(format_of(encoding.format), x, scale);
    if (bits(made, i) == std::bit_cast<std::uint32_t>(wanted)) continue;
    FAIL() << to_string(encoding) << " element " << i << " of " << x << " with scale " << scale << ", kind "
           << static_cast<int>(numbers) << ": " << made.data<float>()[i] << " instead of " << wanted;
  }
  // In place.
  quantize_activation(encoding, layout, values, second, values.data<float>(), true);
  for (std::int64_t i = 0; i < values.size(); ++i)
    if (bits(made, i) != bits(values, i)) FAIL() << to_string(encoding) << " in place, element " << i;
}

/// Lengths along the axis that end with a shorter block, and more blocks than are worked on at a time.
const Shape kShapes[] = {{2, 48, 35}, {1, 33, 17}, {70, 2, 3}, {1, 1, 1072}};

std::vector<Encoding> encodings_of_blocks() {
  std::vector<Encoding> result;
  for (const Format format : {Format::kFloat4E2M1, Format::kFloat8E4M3, Format::kFloat8E5M2})
    for (const BlockScale rule : {BlockScale::kLargest, BlockScale::kLargestRoundedDown})
      result.push_back({format, Granularity::kBlock, 0, 32, Format::kFloat8E8M0, false, rule});
  result.push_back({Format::kFloat4E2M1, Granularity::kBlock, 0, 16, Format::kFloat8E4M3, true});
  return result;
}

TEST(BlockKernels, ActivationsInBlocksAreTheirDefinition) {
  for (Encoding encoding : encodings_of_blocks())
    for (encoding.axis = 0; encoding.axis < 3; ++encoding.axis)
      for (const Shape& shape : kShapes)
        for (const Numbers numbers : kAllNumbers) {
          expect_definition(encoding, shape, numbers, 0.0123f);
          if (HasFatalFailure()) return;
          if (!encoding.second_scale) continue;
          // Large enough that scales vanish, and small enough that they saturate.
          expect_definition(encoding, shape, numbers, 1e5f);
          expect_definition(encoding, shape, numbers, 1e-30f);
          if (HasFatalFailure()) return;
        }
}

TEST(BlockKernels, ValuesOfElementsAreThoseOfElementsTimesScales) {
  for (Encoding encoding : encodings_of_blocks()) {
    if (encoding.second_scale) encoding.rule = BlockScale::kLeastError;
    for (encoding.axis = 0; encoding.axis < 3; ++encoding.axis) {
      std::mt19937 random(5);
      Tensor values(DataType::kFloat32, {3, 48, 50});
      for (std::int64_t i = 0; i < values.size(); ++i) values.data<float>()[i] = draw(Numbers::kSpecial, random);
      const ScaleLayout layout(encoding, values.shape());
      const Tensor there = dequantized(quantize(encoding, layout, values), layout);
      const Tensor at_once = quantized_and_back(encoding, layout, values);
      for (std::int64_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(at_once.data<float>()[i]),
                  std::bit_cast<std::uint32_t>(there.data<float>()[i]))
            << to_string(encoding) << " element " << i;
    }
  }
}

TEST(BlockKernels, LargestMagnitudesLeaveOutNan) {
  const BlockKernels& kernels = block_kernels();
  std::mt19937 random(9);
  for (std::int64_t length = 1; length < 70; ++length) {
    std::vector<float> values(static_cast<std::size_t>(3 * length));
    for (float& x : values) x = draw(Numbers::kSpecial, random);
    float largest[3], wanted[3] = {};
    for (std::size_t i = 0; i < values.size(); ++i)
      if (float& known = wanted[i / static_cast<std::size_t>(length)]; std::fabs(values[i]) > known)
        known = std::fabs(values[i]);
    kernels.largest_of_rows(values.data(), length, 3, largest);
    EXPECT_TRUE(std::ranges::equal(largest, wanted)) << length;
    std::vector<float> columns(static_cast<std::size_t>(length));
    kernels.largest_of_columns(values.data(), length, 3, length, columns.data());
    for (std::int64_t c = 0; c < length; ++c) {
      float most = 0;
      for (std::int64_t r = 0; r < 3; ++r)
        if (const float m = std::fabs(values[static_cast<std::size_t>(r * length + c)]); m > most) most = m;
      EXPECT_EQ(columns[static_cast<std::size_t>(c)], most) << length;
    }
  }
}

}  // namespace
}  // namespace ulpscope::testing
