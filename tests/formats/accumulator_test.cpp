// Sums that are cut: by hand, and every pair of small operands. What a GPU computed is in tests/python/.
#include "formats/accumulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace ulpscope::testing {
namespace {

const Accumulator kFast = *accumulator_of(Accumulation::kHopperFast, Format::kFloat8E4M3, Format::kFloat8E5M2);
const Accumulator kSlow = *accumulator_of(Accumulation::kHopper, Format::kFloat8E4M3, Format::kFloat8E4M3);
const Accumulator kHalf = *accumulator_of(Accumulation::kHopper, Format::kFloat16, Format::kFloat16);

float sum(const Accumulator& accumulator, const std::vector<float>& a, const std::vector<float>& b) {
  return sum_of_products(accumulator, a.data(), b.data(), static_cast<std::int64_t>(a.size()));
}

TEST(Accumulator, IsOfTwoNarrowFloatsAlone) {
  for (const Accumulation each : {Accumulation::kHopper, Accumulation::kHopperFast}) {
    EXPECT_FALSE(accumulator_of(each, Format::kFloat32, Format::kFloat32));
    EXPECT_FALSE(accumulator_of(each, Format::kTF32, Format::kTF32));
    EXPECT_FALSE(accumulator_of(each, Format::kInt8, Format::kInt8));
    EXPECT_FALSE(accumulator_of(each, Format::kFloat16, Format::kBFloat16));
    EXPECT_TRUE(accumulator_of(each, Format::kBFloat16, Format::kBFloat16));
  }
  EXPECT_FALSE(accumulator_of(Accumulation::kFP32, Format::kFloat16, Format::kFloat16));
  EXPECT_EQ(kFast.restart, 0);
  EXPECT_EQ(kSlow.restart, 128);
}

TEST(Accumulator, OfOneProductIsTheProduct) {
  // 4 bits by 4 bits are 8, and 11 by 11 are 22: both are held.
  for (int a = 0; a < 16; ++a)
    for (int b = -16; b < 16; ++b) {
      EXPECT_EQ(sum(kFast, {static_cast<float>(a)}, {static_cast<float>(b)}), static_cast<float>(a * b));
      EXPECT_EQ(sum(kHalf, {static_cast<float>(a) * 0x1p-24f}, {static_cast<float>(b)}),
                static_cast<float>(a * b) * 0x1p-24f);
    }
}

TEST(Accumulator, CutsTowardZeroBelowTheLargestExponent) {
  // 2^-13 of the largest is the last place of a step; what is below it is gone, whatever its sign.
  EXPECT_EQ(sum(kFast, {128, 1}, {128, 2}), 16386.0f);
  EXPECT_EQ(sum(kFast, {128, 1}, {128, 1}), 16384.0f);
  EXPECT_EQ(sum(kFast, {128, -1}, {128, 1}), 16384.0f);
  EXPECT_EQ(sum(kFast, {128, 1.5f}, {128, 2}), 16386.0f);
  EXPECT_EQ(sum(kFast, {-128, 1.5f}, {128, -2}), -16386.0f);
  // The exponents of operands count: 1.5 * 1.5 = 2.25 cuts as 1 * 1 does, so that 2^-13 twice is not lost.
  EXPECT_EQ(sum(kFast, {1.5f, 0x1p-6f, 0x1p-6f}, {1.5f, 0x1p-7f, 0x1p-7f}), 2.25f + 0x1p-12f);
}

TEST(Accumulator, SubnormalOperandsHaveTheExponentOfTheSmallestNormalNumber) {
  // 2^8 times the subnormal 2^-9: cut at 2^(8 - 6 - 13), as 2^8 times 2^-6 is. 2^-12 is below that.
  EXPECT_EQ(sum(kSlow, {256, 0x1p-6f}, {0x1p-9f, 0x1p-6f}), 0.5f);
  EXPECT_EQ(sum(kSlow, {256, 0x1p-5f}, {0x1p-9f, 0x1p-6f}), 0.5f + 0x1p-11f);
  EXPECT_EQ(sum(kSlow, {32, 0x1p-6f}, {0x1p-6f, 0x1p-6f}), 0.5f + 0x1p-12f);
}

TEST(Accumulator, StartsAgainWhereItIsAskedTo) {
  // Ones: where the sum is 2^14, a step cuts at 2, and nothing is added any more.
  const std::vector<float> ones(20000, 1.0f);
  EXPECT_EQ(sum(kSlow, ones, ones), 20000.0f);
  const std::vector<float> odd(16384 + 33, 1.0f);
  EXPECT_EQ(sum(kSlow, odd, odd), 16417.0f);
  EXPECT_EQ(sum(kFast, odd, odd), 16384.0f);
}

TEST(Accumulator, HasNothingOfZeros) {
  const std::vector<float> zeros(40, 0.0f), tiny(40, 0x1p-9f);
  EXPECT_EQ(sum(kFast, zeros, tiny), 0.0f);
  std::vector<float> late = zeros;
  late[39] = 0x1p-9f;
  EXPECT_EQ(sum(kFast, late, tiny), 0x1p-18f);
}

TEST(Accumulator, GivesWhatFloat32GivesOfInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(sum(kHalf, {inf, 1}, {1, 1}), inf);
  EXPECT_TRUE(std::isnan(sum(kHalf, {inf, 1}, {0, 1})));
  EXPECT_TRUE(std::isnan(sum(kHalf, {inf, inf}, {1, -1})));
}

TEST(Accumulator, OfRowsIsThatOfEachPair) {
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{1, 0, -1, 2, 2, 2, 0, 0, 1};
  std::vector<float> out(6);
  multiply_rows(kHalf, a.data(), b.data(), out.data(), 2, 3, 3);
  EXPECT_EQ(out, (std::vector<float>{-2, 12, 3, -2, 30, 6}));
}

}  // namespace
}  // namespace ulpscope::testing
