// Formats of weights by their bits: what answers always are, whatever is predicted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "precision/search_helpers.h"
#include "precision/search_space.h"
#include "precision/weight_bits.h"

namespace ulpscope::testing {
namespace {

using ::testing::HasSubstr;
constexpr std::int64_t kWidth = 128, kLabels = 32;

/// Weights with a heavy tail, as trained ones have it; some layers count more than others.
std::vector<float> weights_of(std::int64_t count, float size, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> result(static_cast<std::size_t>(count));
  for (float& each : result) {
    const float x = normal(random);
    each = size * x * (1 + 0.2f * x * x);
  }
  return result;
}

/// Blocks of gate * tanh(up) and down around a residual, and a head: groups of two and of one.
std::shared_ptr<Network> decoder(int blocks = 4) {
  Model model;
  model.input("x", {12, kWidth});
  std::uint32_t seed = 0;
  const auto product = [&](const std::string& input, const std::string& name, std::int64_t columns, float size) {
    *model.graph().add_initializer() =
        float_tensor(name + ".weight", {kWidth, columns}, weights_of(kWidth * columns, size, ++seed));
    model.node("MatMul", {input, name + ".weight"}, {name + ".out"}, name);
  };
  std::string x = "x";
  for (int b = 0; b < blocks; ++b) {
    const std::string p = "b" + std::to_string(b) + ".";
    const float size = 0.03f + 0.02f * static_cast<float>(b % 3);
    product(x, p + "gate", kWidth, size);
    product(x, p + "up", kWidth, size);
    model.node("Tanh", {p + "up.out"}, {p + "tanh"}, p + "Tanh");
    model.node("Mul", {p + "gate.out", p + "tanh"}, {p + "mul"}, p + "Mul");
    product(p + "mul", p + "down", kWidth, 0.05f);
    model.node("Add", {x, p + "down.out"}, {p + "x"}, p + "Add");
    x = p + "x";
  }
  product(x, "head", kLabels, 0.08f);
  model.output("head.out");
  return model.load();
}

std::unique_ptr<Criterion> kl(double threshold) {
  return make_metric_criterion(MetricKind::kKl, PerName<double>(threshold));
}

struct Searched {
  SearchData data;
  SearchTask task;
};

/// As search() makes it of --weights-only --int4 --nvfp4 --int8 --fp8.
Searched searched(Objective objective, double bits = 0, const std::shared_ptr<const Network>& searched = decoder()) {
  using enum Precision;
  Searched result;
  const auto network = std::make_shared<Network>(*searched);
  result.data = data_for(network, "x", {12, kWidth}, -2, 2);
  SearchTask& task = result.task;
  task.build = tested_options();
  task.build.enabled = {kNVFP4Weights, kINT4, kINT8Weights, kFP8Weights};
  task.build.constraints = ConstraintMode::kObey;
  task.build.assume_lowest = true;
  task.build.threads = 1;
  task.objective = objective;
  task.bits = bits;
  task.margin = 1;
  task.has_tolerance = objective == Objective::kBits;
  const auto spec = specialize(*network, {{12, kWidth}});
  task.formats = weight_formats(*spec, task.build.enabled, task.ladder, DataType::kFloat32);
  for (const auto& [id, formats] : task.formats) network->layer(id).precision = formats.front();
  return result;
}

double used_by(const Searched& of, const Criterion& criterion, const std::map<std::string, Precision>& formats) {
  Trials trials(of.data.network, of.task.build, of.data.samples);
  Requests requested = own_requests(*of.data.network);
  for (const auto& [name, format] : formats) requested[of.data.network->find_layer(name)] = format;
  return criterion.judge(trials.run(trials.full_precision(), false), trials.run(trials.assign(requested), false)).used;
}

std::map<std::string, Precision> formats_of(const Answer& answer) {
  std::map<std::string, Precision> result;
  for (const auto& layer : answer.bits->layers) result[layer.name] = layer.format;
  return result;
}

std::map<std::string, Precision> everywhere(const Searched& of, Precision format) {
  std::map<std::string, Precision> result;
  for (const auto& [id, formats] : of.task.formats) result[of.data.network->layer(id).name] = format;
  return result;
}

double bits_of(const Searched& of, const std::map<std::string, Precision>& formats) {
  const auto spec = specialize(*of.data.network, {{12, kWidth}});
  double bits = 0, weights = 0;
  for (const auto& [name, format] : formats) {
    const StoredWeights stored = stored_weights(*spec, of.data.network->find_layer(name), format, DataType::kFloat32);
    bits += static_cast<double>(stored.bits);
    weights += static_cast<double>(stored.weights);
  }
  return bits / weights;
}

TEST(SearchBits, StaysWithinTheBudgetAndIsNoWorseThanOneFormatThatFits) {
  const auto criterion = kl(1);
  for (const double budget : {4.25, 4.5, 6.0, 40.0}) {
    SCOPED_TRACE(budget);
    const Searched of = searched(Objective::kError, budget);
    const Answer answer = run(of.data, *criterion, of.task);
    ASSERT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
    ASSERT_TRUE(answer.bits);
    const auto formats = formats_of(answer);
    EXPECT_EQ(formats.size(), of.task.formats.size());
    EXPECT_LE(answer.bits->per_weight(), budget);
    EXPECT_DOUBLE_EQ(answer.bits->per_weight(), bits_of(of, formats));
    EXPECT_LE(answer.evaluations, 8);
    for (int b = 0; b < 4; ++b)
      EXPECT_EQ(formats.at("b" + std::to_string(b) + ".gate"), formats.at("b" + std::to_string(b) + ".up"));
    const double used = used_by(of, *criterion, formats);
    EXPECT_DOUBLE_EQ(answer.search.used, used) << "the layers of the answer are those that were tried";
    for (const Precision format :
         {Precision::kINT4, Precision::kNVFP4Weights, Precision::kINT8Weights, Precision::kFP8Weights})
      if (const auto uniform = everywhere(of, format); bits_of(of, uniform) <= budget)
        EXPECT_LE(used, used_by(of, *criterion, uniform)) << name_of(format);
    ASSERT_GT(answer.bits->curve.size(), 4u);
    for (std::size_t i = 1; i < answer.bits->curve.size(); ++i) {
      EXPECT_GT(answer.bits->curve[i].bits, answer.bits->curve[i - 1].bits);
      EXPECT_LE(answer.bits->curve[i].used, answer.bits->curve[i - 1].used);
    }
  }
}

TEST(SearchBits, MoreBitsLeaveLessError) {
  const auto criterion = kl(1);
  const auto used = [&](double budget) {
    const Searched of = searched(Objective::kError, budget);
    return run(of.data, *criterion, of.task).search.used;
  };
  EXPECT_LT(used(5.5), 0.9 * used(4.3));
  EXPECT_LT(used(7), 0.9 * used(5.5));
}

TEST(SearchBits, TakesAsFewBitsAsHoldTheTolerance) {
  const Searched in_int4 = searched(Objective::kBits);
  const double most = used_by(in_int4, *kl(1), everywhere(in_int4, Precision::kINT4)),
               least = used_by(in_int4, *kl(1), everywhere(in_int4, Precision::kINT8Weights));
  double before = 4;
  for (const double share : {1.01, 0.5, 0.2}) {
    const auto criterion = kl(least + share * (most - least));
    const Answer answer = run(in_int4.data, *criterion, in_int4.task);
    ASSERT_TRUE(answer.bits) << answer.message;
    EXPECT_LE(answer.search.used, 1);
    EXPECT_LE(used_by(in_int4, *criterion, formats_of(answer)), 1 + 1e-9);
    EXPECT_LE(answer.bits->per_weight(), bits_of(in_int4, everywhere(in_int4, Precision::kINT8Weights)));
    EXPECT_GE(answer.bits->per_weight(), before) << "a smaller tolerance takes no fewer bits";
    EXPECT_LE(answer.evaluations, 8 * (1 + answer.joined_samples));
    before = answer.bits->per_weight();
  }
}

TEST(SearchBits, BudgetsBelowTheLeastSayWhatIsPossible) {
  const Searched of = searched(Objective::kError, 4.1);
  try {
    run(of.data, *kl(1), of.task);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected at least 4.1250"));
    EXPECT_THAT(error.what(), HasSubstr("got 4.1"));
  }
}

TEST(SearchBits, TolerancesBesideABudgetHaveToBeMet) {
  Searched of = searched(Objective::kError, 4.5);
  of.task.has_tolerance = true;
  const Answer answer = run(of.data, *kl(1e-6), of.task);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kNotReachable);
  EXPECT_THAT(answer.message, HasSubstr("4.5 bits per weight"));
  EXPECT_LE(answer.bits->per_weight(), 4.5);
}

/// Spearman's rank correlation.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t i) { return values[i]; });
    std::vector<double> result(values.size());
    for (std::size_t r = 0; r < order.size(); ++r) result[order[r]] = static_cast<double>(r);
    return result;
  };
  const auto x = ranks(a), y = ranks(b);
  const double n = static_cast<double>(a.size());
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (x[i] - y[i]) * (x[i] - y[i]);
  return 1 - 6 * squares / (n * (n * n - 1));
}

/// Means over the samples: [i] is predicted of layers[i], and what it measures alone.
struct Singles {
  std::vector<LayerIn> layers;
  std::vector<double> predicted, measured;
};

Singles singles_of(const Searched& of) {
  const auto criterion = kl(1);
  Trials trials(of.data.network, of.task.build, of.data.samples);
  const auto golden = trials.run(trials.full_precision(), false);
  Singles result;
  for (const auto& [id, formats] : of.task.formats)
    for (const Precision format : formats)
      if (format != Precision::kFP32) result.layers.push_back({id, format});
  PredictorOptions options;
  options.projections = 3;
  const auto squares = predict_squares(trials, trials.assign(own_requests(*of.data.network)), result.layers, *criterion,
                                       golden, options, 0, {});
  EXPECT_EQ(squares.size(), of.data.samples.size());
  for (std::size_t w = 0; w < result.layers.size(); ++w) {
    std::map<std::string, Precision> formats = everywhere(of, Precision::kFP32);
    formats[of.data.network->layer(result.layers[w].layer).name] = result.layers[w].precision;
    result.measured.push_back(used_by(of, *criterion, formats));
    double sum = 0;
    for (const auto& sample : squares) sum += sample[w];
    result.predicted.push_back(sum / static_cast<double>(squares.size()));
  }
  return result;
}

TEST(SearchBits, PredictionsRankLayersAndFormatsAsTrialsDo) {
  const Singles singles = singles_of(searched(Objective::kError, 5));
  EXPECT_GE(rank_correlation(singles.predicted, singles.measured), 0.9);
  const double predicted = std::reduce(singles.predicted.begin(), singles.predicted.end()),
               measured = std::reduce(singles.measured.begin(), singles.measured.end());
  // The largest of three samples against their mean.
  EXPECT_GT(predicted / measured, 0.4);
  EXPECT_LT(predicted / measured, 1.4);
}

/// As a key before softmax: what all rows have in common goes, and inputs have much in common.
std::shared_ptr<Network> keys() {
  Model model;
  model.input("x", {12, kWidth});
  const auto constant = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                            const std::vector<float>& values) {
    *model.graph().add_initializer() = float_tensor(name, shape, values);
  };
  constant("common", {kWidth}, weights_of(kWidth, 8, 21));
  constant("key.weight", {kWidth, kWidth}, weights_of(kWidth * kWidth, 0.03f, 22));
  constant("head.weight", {kWidth, kLabels}, weights_of(kWidth * kLabels, 0.08f, 23));
  model.node("Add", {"x", "common"}, {"h"}, "Add");
  model.node("MatMul", {"h", "key.weight"}, {"k"}, "key");
  add_attribute(model.node("ReduceMean", {"k"}, {"mean"}, "Mean"), "axes", onnx::AttributeProto::INTS).add_ints(0);
  model.node("Sub", {"k", "mean"}, {"own"}, "Own");
  model.node("MatMul", {"own", "head.weight"}, {"head.out"}, "head");
  model.output("head.out");
  return model.load();
}

TEST(SearchBits, ErrorsThatAllRowsShareCountAsTheOneThatTheyAre) {
  const Searched of = searched(Objective::kError, 5, keys());
  const Singles singles = singles_of(of);
  for (std::size_t w = 0; w < singles.layers.size(); ++w) {
    const double ratio = singles.predicted[w] / singles.measured[w];
    SCOPED_TRACE(of.data.network->layer(singles.layers[w].layer).name + " in " +
                 std::string(name_of(singles.layers[w].precision)));
    EXPECT_GT(ratio, 0.4);
    EXPECT_LT(ratio, 1.6);
  }
}

}  // namespace
}  // namespace ulpscope::testing
