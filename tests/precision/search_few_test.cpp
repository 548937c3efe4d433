// The fewest layers of many that are alike.
#include <gtest/gtest.h>

#include <random>

#include "precision/search_helpers.h"
#include "precision/trials.h"

namespace ulpscope::testing {
namespace {

constexpr std::int64_t kChannels = 128;

/// x + tanh(x @ w), sixteen times.
std::shared_ptr<Network> residual_products() {
  Model model;
  model.input("x", {4, kChannels});
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::string x = "x";
  for (int i = 0; i < 16; ++i) {
    const std::string n = std::to_string(i);
    std::vector<float> w(kChannels * kChannels);
    for (float& each : w) each = 0.05f * normal(random);
    *model.graph().add_initializer() = float_tensor("w" + n, {kChannels, kChannels}, w);
    model.node("MatMul", {x, "w" + n}, {"p" + n}, "Product" + n);
    model.node("Tanh", {"p" + n}, {"t" + n}, "Tanh" + n);
    model.node("Add", {x, "t" + n}, {"x" + n}, "Add" + n);
    x = "x" + n;
  }
  model.output(x);
  return model.load();
}

TEST(SearchFew, LowersSingleLayersOf4BitsThatNothingFailsWithout) {
  SearchTask task = fp16_search();
  task.build.enabled = {Precision::kINT4};
  task.build.threads = 1;
  task.margin = 1;
  SearchData data = data_for(residual_products(), "x", {4, kChannels}, -2, 2);
  data.held_out.clear();
  for (const double threshold : {0.13, 0.14, 0.15, 0.16}) {
    SCOPED_TRACE(threshold);
    const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, PerName<double>(threshold));
    const Answer answer = run(data, *criterion, task);
    ASSERT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
    EXPECT_LE(answer.evaluations, 12);
    Trials trials(data.network, task.build, data.samples);
    const auto golden = trials.run(trials.full_precision(), false);
    const auto used = [&](const std::string& but_one) {
      Requests requested = own_requests(*data.network);
      for (const std::string& name : kept(answer))
        if (name != but_one) requested[data.network->find_layer(name)] = Precision::kFP32;
      return criterion->judge(golden, trials.run(trials.assign(requested), false)).used;
    };
    EXPECT_LE(used(""), 1);
    for (const std::string& name : kept(answer)) EXPECT_GT(used(name), 1) << name;
  }
}

}  // namespace
}  // namespace ulpscope::testing
