#include "precision/prediction_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ulpscope {
namespace {

TEST(PredictionScale, IsThePredictionUntilSomethingIsMeasured) {
  const PredictionScale scale;
  EXPECT_EQ(scale.corrected(0.25), 0.25);
  EXPECT_EQ(scale.prediction_of(0.25), 0.25);
}

TEST(PredictionScale, GoesThroughWhatWasMeasured) {
  PredictionScale scale;
  scale.note(0.25, 0.5);
  EXPECT_DOUBLE_EQ(scale.corrected(0.25), 0.5);
  EXPECT_DOUBLE_EQ(scale.corrected(1), 2);  // The nearest ratio, on both sides.
  EXPECT_DOUBLE_EQ(scale.corrected(0.01), 0.02);
  scale.note(1, 1);
  EXPECT_DOUBLE_EQ(scale.corrected(1), 1);
  EXPECT_DOUBLE_EQ(scale.corrected(0.5), 0.5 * std::sqrt(2.0));  // Half way between the logarithms of 1/4 and 1.
  EXPECT_DOUBLE_EQ(scale.corrected(4), 4);
  EXPECT_DOUBLE_EQ(scale.corrected(0.125), 0.25);
}

TEST(PredictionScale, InvertsItself) {
  PredictionScale scale;
  scale.note(0.1, 0.3);
  scale.note(0.5, 0.6);
  scale.note(2, 2.2);
  for (const double predicted : {0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 7.0})
    EXPECT_NEAR(scale.prediction_of(scale.corrected(predicted)), predicted, 1e-12 * predicted);
}

TEST(PredictionScale, TrustsAPredictionNoFurtherThanWhatPassed) {
  PredictionScale scale;
  scale.note(0.1, 0.2);
  scale.note(0.2, 0.9);  // Worse than the next one.
  scale.note(0.4, 0.8);
  const double most = scale.prediction_of(0.85);
  EXPECT_GE(most, 0.4);
  EXPECT_LE(scale.corrected(most), 0.85 * (1 + 1e-12));
}

TEST(PredictionScale, IgnoresWhatHasNoRatio) {
  PredictionScale scale;
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  scale.note(0, 1);
  scale.note(1, 0);
  scale.note(infinity, 1);
  scale.note(1, infinity);
  scale.note(1, nan);
  EXPECT_EQ(scale.corrected(0.5), 0.5);
  scale.note(0.5, 1);
  EXPECT_EQ(scale.corrected(0), 0);
  EXPECT_EQ(scale.corrected(infinity), infinity);
}

}  // namespace
}  // namespace ulpscope
