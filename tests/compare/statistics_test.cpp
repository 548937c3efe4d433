#include "compare/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare/histogram.h"
#include "compare/random_state.h"

namespace ulpscope {
namespace {

/// The output of Add in Polygraphy's example needs_constraints, in float32: x in [1, 2], its columns reversed, + 65504.
Tensor published_sum() {
  const Tensor x = RandomState(1).random_sample({1, 1, 256, 256});
  Tensor sum(DataType::kFloat32, x.shape());
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const float value = static_cast<float>(x.data<double>()[i / 256 * 256 + 255 - i % 256] + 1.0);
    sum.data<float>()[i] = value + 65504.0f;
  }
  return sum;
}

TEST(Statistics, AreThoseOfThePublishedLog) {
  const Tensor sum = published_sum();
  const std::string text = to_string(compute_statistics(sum), false);
  EXPECT_EQ(text.substr(0, text.find(", avg-magnitude")),
            "mean=65506, std-dev=0.28889, var=0.083457, median=65506, min=65505 at (0, 0, 0, 5), max=65506 at (0, 0, "
            "5, 165)");
  EXPECT_NEAR(mean_f32(sum), 65505.49954, 0.01);  // float32 has steps of 1/128 here
}

TEST(Histogram, CountsThoseOfThePublishedLog) {
  Tensor difference = published_sum();
  for (std::int64_t i = 0; i < difference.size(); ++i) difference.data<float>()[i] -= 65504.0f;
  const auto histogram = compute_histogram(difference);
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->counts,
            (std::array<std::int64_t, 10>{6588, 6616, 6499, 6593, 6291, 6749, 6678, 6383, 6619, 6520}));
  EXPECT_EQ(to_string(compute_statistics(difference), false).substr(0, 12), "mean=1.4995,");
}

TEST(Statistics, OfASmallArray) {
  const Tensor tensor = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(to_string(compute_statistics(tensor), false),
            "mean=2.5, std-dev=1.118, var=1.25, median=2.5, min=1 at (0, 0), max=4 at (1, 1), avg-magnitude=2.5, "
            "p90=3.7, p95=3.85, p99=3.97");
}

TEST(Statistics, OfNothing) {
  const Statistics s = compute_statistics(Tensor(DataType::kFloat32, {0, 3}));
  EXPECT_TRUE(std::isnan(s.mean));
  EXPECT_EQ(s.max, 0);
  EXPECT_EQ(s.std_dev, 0);
  EXPECT_EQ(s.median, 0);
}

TEST(Statistics, NanIsFoundFirst) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Statistics s = compute_statistics(Tensor::of<float>({2, 2}, {1, nan, 9, nan}));
  EXPECT_TRUE(std::isnan(s.min) && std::isnan(s.max) && std::isnan(s.median) && std::isnan(*s.p90));
  EXPECT_EQ(s.min_index, (Shape{0, 1}));
  EXPECT_EQ(s.max_index, (Shape{0, 1}));
}

TEST(Statistics, OfBoolHaveNoQuantiles) {
  const Statistics s = compute_statistics(Tensor::of<bool>({4}, {true, false, true, true}));
  EXPECT_EQ(s.mean, 0.75);
  EXPECT_FALSE(s.p90);
}

TEST(Statistics, SumIsPairwise) {
  // Summed one by one in float32, 2^24 would swallow every 1 after it.
  std::vector<float> values(1 << 17, 1.0f);
  values[0] = 16777216.0f;
  EXPECT_GT(pairwise_sum(values.data(), values.size()), 16777216.0f + 131000.0f);
}

TEST(Histogram, WidensARangeOfOneValue) {
  const auto histogram = compute_histogram(Tensor::of<float>({3}, {2, 2, 2}));
  ASSERT_TRUE(histogram);
  EXPECT_EQ(histogram->edges[0], 1.5);
  EXPECT_EQ(histogram->edges[10], 2.5);
  EXPECT_EQ(histogram->counts[5], 3);
}

TEST(Histogram, HasNoneForNanBoolAndNothing) {
  EXPECT_FALSE(compute_histogram(Tensor::of<float>({2}, {1, std::numeric_limits<float>::quiet_NaN()})));
  EXPECT_FALSE(compute_histogram(Tensor::of<float>({2}, {1, std::numeric_limits<float>::infinity()})));
  EXPECT_FALSE(compute_histogram(Tensor::of<bool>({2}, {true, false})));
  EXPECT_FALSE(compute_histogram(Tensor(DataType::kFloat32, {0})));
}

TEST(Histogram, IsDrawn) {
  Histogram histogram;
  for (int i = 0; i < 11; ++i) histogram.edges[static_cast<std::size_t>(i)] = -11.2 + 2 * i;
  histogram.counts = {2, 0, 0, 0, 0, 0, 0, 0, 0, 9};
  const std::string text = to_text(histogram);
  EXPECT_TRUE(
      text.starts_with("---- Histogram ----\n"
                       "Bin Range     |  Num Elems | Visualization\n"
                       "(-11.2, -9.2) |          2 | ########\n"))
      << text;
  EXPECT_TRUE(text.ends_with("|          9 | ########################################\n")) << text;
}

}  // namespace
}  // namespace ulpscope
