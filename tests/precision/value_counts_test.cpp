// Counts of values against a loop over them, one by one, that is written from the definitions alone.
#include "precision/value_counts.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backend/seeds.h"

namespace ulpscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Largest number, smallest normal exponent and bits of the fraction.
struct FormatRange {
  Precision precision;
  double largest;
  int smallest_exponent, fraction_bits;
};
constexpr FormatRange kFormats[] = {{Precision::kFP16, 65504, -14, 10},
                                    {Precision::kBF16, 0x1.fep127, -126, 7},
                                    {Precision::kTF32, 0x1.ffcp127, -126, 10},
                                    {Precision::kFP32, 0x1.fffffep127, -126, 23}};

double nearest(double x, const FormatRange& format) {
  const int exponent = std::max(std::ilogb(x), format.smallest_exponent);
  const double step = std::ldexp(1.0, exponent - format.fraction_bits);
  return std::nearbyint(x / step) * step;
}

RangeCount counted_one_by_one(const std::vector<float>& values, const FormatRange& format, float scale) {
  RangeCount count;
  for (const float value : values) {
    ++count.total;
    const double x = std::fabs(static_cast<double>(value));
    if (x == 0 || x != x) continue;
    ++count.nonzero;
    count.largest = std::max(count.largest, x);
    if (x < kInfinity) {
      count.sum += x;
      ++count.exponents[static_cast<std::size_t>(std::ilogb(x) - kSmallestExponent)];
    }
    if (scale > 0) {
      const double step = scale, error = x - step * std::min(127.0, std::nearbyint(x / step));
      count.clipped += x > 127.5 * step ? 1 : 0;
      count.coarse += x < 0.5 * step ? 1 : 0;
      (x > 127.5 * step ? count.outside_error : count.inside_error) += error * error;
    } else if (x >= format.largest * (1 + std::ldexp(1.0, -format.fraction_bits - 2))) {
      ++count.beyond;
    } else {
      const double error = x - nearest(x, format);
      const bool vanishes = x < std::ldexp(1.0, format.smallest_exponent);
      (vanishes ? count.outside_error : count.inside_error) += error * error;
      if (!vanishes) continue;
      ++count.vanishing;
      count.smallest_vanishing = std::min(count.smallest_vanishing, x);
    }
  }
  return count;
}

/// Sums of so many numbers >= 0 are taken in another order: each addition of either side rounds by 2^-53 at most.
void expect_sum(double actual, double expected, std::int64_t count, const std::string& what) {
  if (std::isfinite(expected))
    EXPECT_NEAR(actual, expected, std::ldexp(static_cast<double>(count), -52) * expected) << what;
  else
    EXPECT_EQ(std::isnan(actual), std::isnan(expected)) << what;
}

void expect_equal(const RangeCount& actual, const RangeCount& expected, const std::string& what) {
  EXPECT_EQ(actual.exponents, expected.exponents) << what;
  EXPECT_EQ(actual.total, expected.total) << what;
  EXPECT_EQ(actual.nonzero, expected.nonzero) << what;
  EXPECT_EQ(actual.beyond, expected.beyond) << what;
  EXPECT_EQ(actual.vanishing, expected.vanishing) << what;
  EXPECT_EQ(actual.clipped, expected.clipped) << what;
  EXPECT_EQ(actual.coarse, expected.coarse) << what;
  EXPECT_EQ(actual.largest, expected.largest) << what;
  EXPECT_EQ(actual.smallest_vanishing, expected.smallest_vanishing) << what;
  expect_sum(actual.sum, expected.sum, expected.total, what);
  expect_sum(actual.inside_error, expected.inside_error, expected.total, what);
  expect_sum(actual.outside_error, expected.outside_error, expected.total, what);
}

/// Numbers of all magnitudes, of one, or those at which a type ends; and what is no number.
class Values {
 public:
  explicit Values(std::uint32_t seed) : random_(seed) {}

  std::int64_t any(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  float value(int kind) {
    constexpr float kEdges[] = {0.0f,
                                1.0f,
                                65504.0f,
                                65519.99f,
                                65519.992f,
                                65520.0f,
                                65536.0f,
                                0x1p-14f,
                                0x1p-24f,
                                0x1p-25f,
                                0x1p-126f,
                                0x1p-149f,
                                0x1.fep127f,
                                0x1.ffp127f,
                                0x1.ffcp127f,
                                0x1.ffep127f,
                                0x1.fffffep127f,
                                127.5f,
                                std::numeric_limits<float>::infinity(),
                                std::numeric_limits<float>::quiet_NaN()};
    if (kind == 0) return std::bit_cast<float>(static_cast<std::uint32_t>(random_()));
    if (kind == 1) return std::normal_distribution<float>(0, 3)(random_);
    const float edge = kEdges[static_cast<std::size_t>(any(0, std::ssize(kEdges) - 1))];
    const float moved = any(0, 2) == 0 ? std::nextafter(edge, any(0, 1) == 0 ? 0.0f : 1e38f) : edge;
    return any(0, 1) == 0 ? moved : -moved;
  }
  std::vector<float> many(std::size_t count) {
    const int kind = static_cast<int>(any(0, 3));
    std::vector<float> values(count);
    for (float& each : values) each = value(kind == 3 ? static_cast<int>(any(0, 2)) : kind);
    return values;
  }

 private:
  std::mt19937 random_;
};

Tensor tensor_of(const std::vector<float>& values, const Shape& shape) {
  Tensor tensor(DataType::kFloat32, shape);
  std::copy(values.begin(), values.end(), tensor.data<float>());
  return tensor;
}

TEST(ValueCounts, RangesAreThoseOfALoop) {
  const std::uint32_t seed = sweeps::seed();
  Values random(seed);
  for (int i = 0; i < sweeps::count(300); ++i) {
    const FormatRange& format = kFormats[random.any(0, 3)];
    const float scale = random.any(0, 3) == 0 ? std::ldexp(1.25f, static_cast<int>(random.any(-20, 10))) : 0.0f;
    const auto values = random.many(static_cast<std::size_t>(random.any(0, random.any(0, 1) == 0 ? 40 : 9000)));
    RangeCount count;
    count_range(tensor_of(values, {std::ssize(values)}), scale > 0 ? Precision::kINT8 : format.precision, scale, count);
    expect_equal(count, counted_one_by_one(values, format, scale),
                 "case " + std::to_string(i) + ", seed " + std::to_string(seed));
  }
}

TEST(ValueCounts, AddUpOverTensors) {
  Values random(sweeps::seed());
  std::vector<float> first = random.many(3000), second = random.many(777);
  RangeCount count, parts;
  for (const auto* values : {&first, &second}) {
    RangeCount part;
    count_range(tensor_of(*values, {std::ssize(*values)}), Precision::kFP16, 0, count);
    count_range(tensor_of(*values, {std::ssize(*values)}), Precision::kFP16, 0, part);
    parts.add(part);
  }
  first.insert(first.end(), second.begin(), second.end());
  expect_equal(count, counted_one_by_one(first, kFormats[0], 0), "one after the other");
  expect_equal(parts, counted_one_by_one(first, kFormats[0], 0), "apart");
}

SumCount summed_one_by_one(const std::vector<float>& a, const std::vector<float>& b, const std::vector<float>& out,
                           const FormatRange& format) {
  SumCount count;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double x = std::fabs(a[i]), y = std::fabs(b[i]), result = std::fabs(out[i]);
    ++count.total;
    if (!(x < kInfinity && y < kInfinity && result < kInfinity)) continue;
    count.absent[0] += x == 0 ? 1 : 0;
    count.absent[1] += y == 0 ? 1 : 0;
    const double large = std::max(x, y), small = std::min(x, y);
    if (large > 16 * result) {
      ++count.cancelled.count;
      count.cancelled.large += large;
      count.cancelled.small += result;
    } else if (small > 0 && large > 16 * small &&
               small < 8 * std::ldexp(1.0, std::ilogb(large) - format.fraction_bits)) {
      ++count.swallowed.count;
      ++count.swallows[x >= y ? 0 : 1];
      count.swallowed.large += large;
      count.swallowed.small += small;
    }
  }
  return count;
}

/// Elements of a shape, broadcast to another one of as many dimensions.
std::vector<float> broadcast(const std::vector<float>& values, const Shape& from, const Shape& to) {
  std::vector<float> result;
  std::vector<std::int64_t> at(to.size(), 0);
  for (std::int64_t i = 0; i < num_elements(to); ++i) {
    std::int64_t rest = i, index = 0, stride = 1;
    for (std::size_t d = to.size(); d-- > 0; rest /= to[d]) {
      index += from[d] == 1 ? 0 : rest % to[d] * stride;
      stride *= from[d];
    }
    result.push_back(values[static_cast<std::size_t>(index)]);
  }
  return result;
}

TEST(ValueCounts, SumsAreThoseOfALoop) {
  const std::uint32_t seed = sweeps::seed();
  Values random(seed);
  for (int i = 0; i < sweeps::count(300); ++i) {
    const std::string what = "case " + std::to_string(i) + ", seed " + std::to_string(seed);
    const FormatRange& format = kFormats[random.any(0, 3)];
    Shape to, shapes[2];
    for (std::int64_t d = random.any(0, 4); d > 0; --d) {
      to.push_back(random.any(0, 3) == 0 ? 1 : random.any(1, d == 1 ? 700 : 9));
      for (Shape& shape : shapes) shape.push_back(random.any(0, 2) == 0 ? 1 : to.back());
    }
    std::vector<float> operands[2], over[2];
    for (int k = 0; k < 2; ++k) {
      operands[k] = random.many(static_cast<std::size_t>(num_elements(shapes[k])));
      over[k] = broadcast(operands[k], shapes[k], to);
    }
    const bool plain = random.any(0, 3) > 0;
    std::vector<float> out = random.many(over[0].size());
    for (std::size_t e = 0; e < out.size() && plain; ++e) out[e] = over[0][e] + over[1][e];
    // Leading dimensions of 1 may be left out.
    for (Shape& shape : shapes)
      while (!shape.empty() && shape[0] == 1 && random.any(0, 1) == 0) shape.erase(shape.begin());
    SumCount count;
    count_sums(tensor_of(operands[0], shapes[0]), tensor_of(operands[1], shapes[1]), tensor_of(out, to),
               format.precision, count);
    const SumCount expected = summed_one_by_one(over[0], over[1], out, format);
    EXPECT_EQ(count.total, expected.total) << what;
    EXPECT_EQ(count.cancelled.count, expected.cancelled.count) << what;
    EXPECT_EQ(count.swallowed.count, expected.swallowed.count) << what;
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(count.swallows[k], expected.swallows[k]) << what;
      EXPECT_EQ(count.absent[k], expected.absent[k]) << what;
    }
    expect_sum(count.cancelled.large, expected.cancelled.large, expected.total, what);
    expect_sum(count.cancelled.small, expected.cancelled.small, expected.total, what);
    expect_sum(count.swallowed.large, expected.swallowed.large, expected.total, what);
    expect_sum(count.swallowed.small, expected.swallowed.small, expected.total, what);
  }
}

}  // namespace
}  // namespace ulpscope
