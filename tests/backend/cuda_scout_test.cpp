// The convolutions that a plan asks for, before it is lowered.
#include <gtest/gtest.h>

#include "backend/cuda/scout.h"
#include "backend/lowered_networks.h"
#include "engine/fusion.h"

namespace ulpscope::cuda::fake {
namespace {

/// The device that it stands for refuses steps behind the sums, or all convolutions.
class ScoutTest : public ::testing::TestWithParam<Rules> {};

TEST_P(ScoutTest, FindsWhatALoweringAsksForInAFewRounds) {
  Net n("two kinds of convolutions");
  auto x = n.input("x", {1, 8, 6, 5});
  for (int i = 0; i < 3; ++i)
    x = n.add("Relu", {n.add("Conv", {x, n.weight({8, 8, 3, 3}), n.weight({8})},
                             {Net::Attribute("pads", std::vector<std::int64_t>{1, 1, 1, 1})})});
  n.output(n.add("Conv", {x, n.weight({8, 8, 3, 3})}));
  const Network& network = n.finish();
  const auto spec = specialize(network, {{1, 8, 6, 5}});
  const IdMap<LayerId, GraphFunction> subgraphs(network.layers.size());
  const BuildOptions options = options_of({Precision::kFP16}, Fusion::kFull);
  const Assignment assignment = assign_precisions(*spec, options);
  const Schedule schedule = describe(*spec, assignment, fuse(*spec, assignment, options.fusion));

  FakeDevice device(GetParam());
  std::vector<ConvolutionSpec> known;
  const auto knows = [&](const ConvolutionSpec& wanted) { return std::ranges::find(known, wanted) != known.end(); };
  constexpr int kMost = 3;
  int rounds = 0;
  for (bool more = true; more; ++rounds) {
    ASSERT_LE(rounds, kMost);
    WeightCache weights;
    Scout scout(device, knows);
    lower(*spec, schedule, weights, subgraphs, scout);
    more = !scout.unknown().empty();
    known.insert(known.end(), scout.unknown().begin(), scout.unknown().end());
  }
  EXPECT_EQ(device.constant_bytes(), 0u) << "nothing is put on the device";
  EXPECT_GE(known.size(), 2u) << "the three that are alike count once";

  WeightCache weights;
  Scout asked(device, [&](const ConvolutionSpec& wanted) {
    EXPECT_TRUE(knows(wanted)) << "a lowering asks for nothing else";
    return true;
  });
  lower(*spec, schedule, weights, subgraphs, asked);
}

INSTANTIATE_TEST_SUITE_P(Devices, ScoutTest,
                         ::testing::Values(Rules{}, Rules{.steps = false}, Rules{.convolutions = false}));

}  // namespace
}  // namespace ulpscope::cuda::fake
