#include "formats/rounding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ulpscope {
namespace {

/// Rounds by the definition: to the nearest multiple of the spacing of the format, ties to even, in double.
float reference(double value, int fraction_bits, int min_exponent, double largest) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return static_cast<float>(value);
  const int exponent = std::max(std::ilogb(value), min_exponent);
  const double spacing = std::ldexp(1.0, exponent - fraction_bits);
  const double rounded = std::nearbyint(value / spacing) * spacing;
  return static_cast<float>(std::fabs(rounded) > largest ? std::copysign(INFINITY, value) : rounded);
}

std::vector<float> interesting_values() {
  std::vector<float> values{0.0f,       -0.0f,     1.0f,      -1.0f,           65504.0f,   65519.0f,
                            65519.996f, 65520.0f,  65536.0f,  -65520.0f,       1e30f,      -1e30f,
                            0x1p-14f,   0x1p-24f,  0x1p-25f,  0x1.000002p-25f, 0x1.8p-24f, 0x1p-26f,
                            1e-30f,     0x1p-126f, 0x1p-149f, 3.4028235e38f,   INFINITY,   -INFINITY};
  std::mt19937 random(3);
  for (int i = 0; i < 200000; ++i) {
    const float f = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isnan(f)) values.push_back(f);
  }
  // Exact ties of binary16.
  for (std::uint32_t half = 0; half < 0x7c00; half += 7) {
    const float a = f16_value(static_cast<std::uint16_t>(half)), b = f16_value(static_cast<std::uint16_t>(half + 1));
    if (std::isfinite(b)) values.push_back((a + b) / 2);
  }
  return values;
}

TEST(Rounding, Binary16IsToNearestEvenWithOverflowAndSubnormals) {
  for (float value : interesting_values()) EXPECT_EQ(round_to_f16(value), reference(value, 10, -14, 65504.0)) << value;
}

TEST(Rounding, BFloat16IsToNearestEven) {
  for (float value : interesting_values())
    EXPECT_EQ(round_to_bf16(value), reference(value, 7, -126, 0x1.fep127)) << value;
}

TEST(Rounding, TF32IsToNearestEven) {
  for (float value : interesting_values())
    EXPECT_EQ(round_to_tf32(value), reference(value, 10, -126, 0x1.ffcp127)) << value;
}

TEST(Rounding, NanStaysNan) {
  for (Rounding r : {Rounding::kF16, Rounding::kBF16, Rounding::kTF32})
    for (std::uint32_t bits : {0x7f800001u, 0x7fc00000u, 0xff800001u, 0x7fffffffu})
      EXPECT_TRUE(std::isnan(round_value(std::bit_cast<float>(bits), r)));
}

TEST(Rounding, ArraysGiveTheBitsOfSingleValues) {
  std::vector<float> values = interesting_values();
  values.push_back(NAN);
  for (Rounding r : {Rounding::kNone, Rounding::kF16, Rounding::kBF16, Rounding::kTF32}) {
    std::vector<float> out(values.size());
    round_array(values.data(), out.data(), values.size(), r);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i]))
        EXPECT_TRUE(std::isnan(out[i]));
      else
        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), std::bit_cast<std::uint32_t>(round_value(values[i], r)))
            << values[i];
    }
  }
}

TEST(Rounding, AllHalvesSurviveTheWayThereAndBack) {
  for (std::uint32_t half = 0; half < 0x10000; ++half) {
    const float value = f16_value(static_cast<std::uint16_t>(half));
    if (!std::isnan(value)) EXPECT_EQ(f16_bits(value), half);
  }
}

/// All halves, and floats around them: among them NaN with and without the quiet bit.
TEST(Rounding, ArraysOfHalvesHaveTheBitsOfSingleOnes) {
  std::vector<std::uint16_t> halves;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) halves.push_back(static_cast<std::uint16_t>(bits));
  halves.resize(halves.size() - 3);  // The last block is not full.
  std::vector<float> wide(halves.size());
  widen_f16(halves.data(), wide.data(), halves.size());
  for (std::size_t i = 0; i < halves.size(); ++i)
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(f16_value(halves[i]))) << i;
  for (const std::uint32_t off : {0u, 1u, 0xfffu, 0x1000u, 0x1001u}) {
    std::vector<float> values;
    for (float value : wide) values.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + off));
    std::vector<std::uint16_t> narrow(values.size());
    narrow_to_f16(values.data(), narrow.data(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(narrow[i], f16_bits(values[i])) << i << " " << off;
  }
}

TEST(Rounding, ToOddMakesASecondRoundingHarmless) {
  // 1 + 2^-11 + 2^-40 lies just above a tie of binary16: through float32 it would round down to even.
  const double value = 1.0 + 0x1p-11 + 0x1p-40;
  EXPECT_EQ(round_to_f16(static_cast<float>(value)), 1.0f);
  EXPECT_EQ(round_to_f16(round_to_odd(value)), 1.0f + 0x1p-10f);
}

TEST(Rounding, ColumnsAreQuantizedAsValuesByThemselves) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, 50);
  for (std::size_t count : {1u, 5u, 16u, 37u, 100u}) {
    std::vector<float> in(count), scales(count), out(count), largest(count, 0.0f);
    for (std::size_t i = 0; i < count; ++i) {
      in[i] = normal(random);
      scales[i] = std::fabs(normal(random)) / 100 + 1e-3f;
    }
    in[count / 2] = NAN;
    in[count - 1] = -INFINITY;
    quantize_columns(in.data(), out.data(), count, scales.data(), -127, 127);
    max_magnitudes(in.data(), largest.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      float alone;
      quantize_array(&in[i], &alone, 1, scales[i], -127, 127, false);
      EXPECT_EQ(out[i], alone) << in[i] << " / " << scales[i];
      EXPECT_EQ(largest[i], std::isnan(in[i]) ? 0.0f : std::fabs(in[i]));
    }
  }
}

TEST(Rounding, BytesAreTheNearestIntegersOfQuotients) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 60);
  for (std::size_t count : {0u, 1u, 15u, 16u, 17u, 200u})
    for (const bool is_unsigned : {false, true}) {
      const float scale = std::fabs(normal(random)) / 100 + 1e-3f, low = is_unsigned ? 0 : -128;
      std::vector<float> in(count);
      for (std::size_t i = 0; i < count; ++i) in[i] = normal(random);
      const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 2.5f * scale, -3.5f * scale, 1e-40f, 1e30f};
      for (std::size_t i = 0; i < std::min<std::size_t>(count, 8); ++i) in[count - 1 - i] = special[i];
      std::vector<std::uint8_t> out(count + 1, 77);
      quantize_bytes(in.data(), out.data(), count, scale, low, low + 255);
      EXPECT_EQ(out[count], 77);
      for (std::size_t i = 0; i < count; ++i) {
        // Of a float32 quotient; std::nearbyint rounds ties to even.
        const double quotient = in[i] / scale;
        const double integer = std::isnan(quotient) ? 0 : std::nearbyint(quotient);
        const double expected = std::clamp<double>(integer, low, low + 255);
        const double got = is_unsigned ? out[i] : static_cast<std::int8_t>(out[i]);
        EXPECT_EQ(got, expected) << in[i] << " / " << scale;
      }
    }
}

}  // namespace
}  // namespace ulpscope
