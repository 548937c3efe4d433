#include "precision/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace ulpscope {
namespace {

constexpr std::size_t kLayers = 400;

/// Means of squares of normal values, of `projections` each, whose amplitudes differ from sample to sample by
/// exp(spread * normal).
std::vector<LayerEffect> drawn_effects(std::size_t samples, int projections, double spread, std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::vector<LayerId> layers;
  for (std::size_t i = 0; i < kLayers; ++i) layers.emplace_back(i);
  std::vector<SampleEffects> all(samples);
  for (SampleEffects& sample : all) {
    const double loudness = std::exp(normal(random));  // What all layers share is not theirs.
    for (std::size_t i = 0; i < kLayers; ++i) {
      const double amplitude = 1e-3 * loudness * std::exp(spread * normal(random));
      double squares = 0;
      for (int k = 0; k < projections; ++k) squares += std::pow(amplitude * normal(random), 2) / projections;
      sample.mean_squares.push_back(squares);
    }
    sample.overflows.assign(kLayers, 0);
    sample.incomplete.assign(kLayers, 0);
  }
  return combine_effects(layers, std::move(all), projections);
}

double share_with_spread(const std::vector<LayerEffect>& effects) {
  return static_cast<double>(std::ranges::count_if(effects, [](const LayerEffect& e) { return e.spread > 0; })) /
         kLayers;
}

TEST(Predictor, NoiseOfProjectionsIsNoSpread) {
  for (const std::size_t samples : {4u, 6u, 8u, 16u})
    for (const int projections : {3, 5, 8}) {
      // One in a hundred, and more of few projections, whose logarithms are skewed.
      EXPECT_LT(share_with_spread(drawn_effects(samples, projections, 0)), 0.06);
    }
}

TEST(Predictor, SeesLayersThatSamplesDisagreeAbout) {
  for (const std::size_t samples : {6u, 8u, 16u}) {
    const std::vector<LayerEffect> effects = drawn_effects(samples, 5, 1);
    EXPECT_GT(share_with_spread(effects), 0.75);
    double sum = 0;
    for (const LayerEffect& each : effects) sum += each.spread / kLayers;
    EXPECT_NEAR(sum, 1, 0.25);
  }
}

TEST(Predictor, ThreeSamplesTellNoSpread) { EXPECT_EQ(share_with_spread(drawn_effects(3, 5, 2)), 0); }

TEST(Predictor, OtherSamplesUseNoMoreThanTenTimesTheWorst) {
  EXPECT_DOUBLE_EQ(effect_beyond({.effect = 0.2, .spread = 0.8}, 2.5), 0.2 * std::exp(2.0));
  EXPECT_DOUBLE_EQ(effect_beyond({.effect = 0.05, .spread = 1.3}, 2.5), 0.5);
}

TEST(Predictor, AnEffectThatIsNotFiniteHasNoSpread) {
  std::vector<SampleEffects> samples(5, SampleEffects{{1e-6, 1e-6}, {0, 0}, {0, 0}});
  samples[2].mean_squares[1] = INFINITY;
  samples[3].mean_squares[1] = 0;
  const std::vector<LayerId> layers{LayerId(std::size_t{0}), LayerId(std::size_t{1})};
  for (const LayerEffect& each : combine_effects(layers, samples, 5)) EXPECT_EQ(each.spread, 0);
}

}  // namespace
}  // namespace ulpscope
