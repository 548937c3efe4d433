// The curve of error against time, judged by brute force over all assignments of small networks.
#include "precision/trade_off.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "engine/option_names.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

/// A random network of up to 9 layers of arithmetic: products, sums and functions over a few shapes.
std::shared_ptr<Network> random_network(std::mt19937& random) {
  Model model;
  const std::int64_t n = 8 << random() % 4;
  model.input("v0", {n, n});
  const int layers = 4 + static_cast<int>(random() % 6);
  std::vector<std::string> values{"v0"};
  for (int i = 1; i <= layers; ++i) {
    const std::string out = fmt::format("v{}", i),
                      a = values[values.size() - 1 - random() % std::min<std::size_t>(2, values.size())];
    const char* const ops[] = {"MatMul", "Add", "Mul", "Tanh", "Softmax", "Transpose"};
    const std::string op = ops[random() % std::size(ops)];
    const bool binary = op == "MatMul" || op == "Add" || op == "Mul";
    if (binary)
      model.node(op, {a, values[random() % values.size()]}, {out}, op + fmt::format("_{}", i));
    else
      model.node(op, {a}, {out}, op + fmt::format("_{}", i));
    values.push_back(out);
  }
  model.output(values.back());
  return model.load();
}

/// Launches that cost little, so that there is something to trade.
std::string target_file(double launch_us = 0.3) {
  const std::string path = ::testing::TempDir() + fmt::format("trade_off_target_{}_{}.json", launch_us, ::getpid());
  std::ofstream(path) << fmt::format(
      R"({{"format": "ulpscope-target", "version": 1, "name": "t", "bandwidth_gb_per_s": 1, "launch_us": {}, )"
      R"("tflops": {{"fp32": 0.01, "fp16": 0.08}}}})",
      launch_us);
  return path;
}

SearchTask task_for(Fusion fusion) {
  SearchTask task = fp16_search(fusion);
  task.build.target = target_file();
  return task;
}

class AgainstBruteForce : public ::testing::TestWithParam<Fusion> {};

TEST_P(AgainstBruteForce, PolishedPointsAreCloseToTheBest) {
  constexpr int kNetworks = 150;
  const unsigned seed = 20261122;
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int compared = 0, optimal = 0;
  for (int k = 0; k < kNetworks; ++k) {
    const auto network = random_network(random);
    std::vector<TensorMap> samples{{{"v0", values_in(*network->tensor(network->inputs[0]).shape, -1, 1, 1)}}};
    SearchSpace space(network, task_for(GetParam()), samples);
    const std::size_t n = space.candidates().size();
    if (n == 0) continue;
    SquaredEffects effects;
    std::exponential_distribution<double> effect(1);
    for (std::size_t i = 0; i < n; ++i) effects.push_back({std::pow(effect(random), 4), 0.0});
    double total = 0;
    for (const auto& each : effects) total += each[0];
    const double most = total * std::uniform_real_distribution<double>(0, 1)(random);
    double best = space.time_us(space.highest());
    for (std::size_t bits = 0; bits < (std::size_t{1} << n); ++bits) {
      Levels levels(n);
      double squares = 0;
      for (std::size_t i = 0; i < n; ++i) {
        levels[i] = static_cast<std::uint8_t>(bits >> i & 1);
        squares += effects[i][levels[i]];
      }
      if (squares <= most) best = std::min(best, space.time_us(levels));
    }
    TradeOff trade_off(space, effects);
    const std::vector<TradeOffPoint> curve = trade_off.curve();
    for (std::size_t i = 1; i < curve.size(); ++i) {
      EXPECT_GT(curve[i].time_us, curve[i - 1].time_us);
      EXPECT_LT(curve[i].squares, curve[i - 1].squares);
    }
    std::size_t first = 0;
    while (first + 1 < curve.size() && curve[first].squares > most) ++first;
    TradeOffPoint ours = trade_off.polish(curve[first], most, 1000);
    if (first > 0)
      if (const TradeOffPoint raised = trade_off.raise(curve[first - 1], most, 1000); raised.time_us < ours.time_us)
        ours = raised;
    EXPECT_LE(ours.squares, most + 1e-12);
    EXPECT_LE(ours.time_us, space.time_us(space.highest()));
    EXPECT_DOUBLE_EQ(ours.time_us, space.time_us(ours.levels));
    ++compared;
    optimal += ours.time_us <= best * 1.03 ? 1 : 0;
    EXPECT_LE(ours.time_us, best * 1.25) << "network " << k;
  }
  EXPECT_GT(compared, kNetworks * 9 / 10);
  EXPECT_GE(optimal, compared * 95 / 100) << "of " << compared;
}

INSTANTIATE_TEST_SUITE_P(Fusions, AgainstBruteForce, ::testing::Values(Fusion::kNone, Fusion::kFull),
                         [](const auto& info) { return std::string(name_of(info.param)); });

/// A layer between two high ones would cost casts in the lower type: the tolerance goes to one at the border, although
/// its effect is larger.
TEST(TradeOff, LowersLayersThatTakeNoTimeFirst) {
  Model model;
  model.input("v0", {64, 64});
  for (int i = 1; i <= 4; ++i) model.node("Tanh", {fmt::format("v{}", i - 1)}, {fmt::format("v{}", i)});
  model.output("v4");
  std::vector<TensorMap> samples{{{"v0", values_in({64, 64}, -1, 1, 1)}}};
  SearchSpace space(model.load(), task_for(Fusion::kNone), samples);
  TradeOff trade_off(space, {{9, 0}, {1, 0}, {0.5, 0}, {9, 0}});
  const TradeOffPoint lowered = trade_off.lower(trade_off.point({0, 1, 1, 1}), 10);
  EXPECT_EQ(lowered.levels, (Levels{0, 0, 1, 1}));
  EXPECT_EQ(trade_off.lower(lowered, 10.5).levels, (Levels{0, 0, 0, 1}));
}

TEST(TradeOff, LayersThatMayNotBeLowStayHigh) {
  std::mt19937 random(7);
  const auto network = random_network(random);
  std::vector<TensorMap> samples{{{"v0", values_in(*network->tensor(network->inputs[0]).shape, -1, 1, 1)}}};
  SearchSpace space(network, task_for(Fusion::kFull), samples);
  SquaredEffects effects(space.candidates().size(), {1e-9, 0.0});
  effects[0][0] = std::numeric_limits<double>::infinity();
  for (const TradeOffPoint& point : TradeOff(space, effects).curve()) EXPECT_EQ(point.levels[0], 1);
}

/// Whatever passes, the answer is hardly slower than everything high or everything low, launches left out: layers that
/// stay for time alone have to save 5 %.
TEST(SearchFastest, IsHardlySlowerThanUniformPrecisions) {
  std::mt19937 random(11);
  for (int k = 0; k < 20; ++k) {
    const auto network = random_network(random);
    SearchTask task = task_for(Fusion::kFull);
    task.objective = Objective::kFastest;
    task.build.target = target_file(1e-6);
    const SearchData data = data_for(network, "v0", *network->tensor(network->inputs[0]).shape, -1, 1);
    for (const double tolerance : {1e-2, 1e-3, 3e-4}) {
      const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, tolerance);
      const Answer answer = run(data, *criterion, task);
      ASSERT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
      EXPECT_LE(0.95 * answer.time_us, answer.time_high_us);
      EXPECT_LE(answer.evaluations, 14);
      EXPECT_LE(answer.search.used, answer.margin);
      ASSERT_TRUE(answer.held_out);
      EXPECT_LE(answer.held_out->used, 1);
      if (answer.kept.empty()) EXPECT_DOUBLE_EQ(answer.time_us, answer.time_low_us);
    }
  }
}

TEST(SearchFastest, SaysThatAllLayersNeedMorePrecision) {
  SearchTask task = fp16_search();
  task.objective = Objective::kFastest;
  const auto network = add_sub();
  const Answer answer = run(data_for(network, "x", {4}, 1, 2), *allclose(1e-6, 1e-6), task);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_EQ(answer.kept.size(), 2u);
  EXPECT_EQ(answer.message, "2 of 2 layers need more precision");
}

}  // namespace
}  // namespace ulpscope::testing
