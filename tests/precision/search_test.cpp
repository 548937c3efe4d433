// The search, on networks whose answer is known by construction.
#include "precision/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "engine/build_helpers.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Tensor values_in(Shape shape, double low, double high, std::uint32_t seed) {
  Tensor result(DataType::kFloat32, std::move(shape));
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t i = 0; i < result.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    result.data<float>()[i] = static_cast<float>(low + (high - low) * (state >> 8) / double(1 << 24));
  }
  return result;
}

SearchData data_for(std::shared_ptr<const Network> network, const std::string& input, const Shape& shape, double low,
                    double high) {
  SearchData data;
  data.network = std::move(network);
  for (std::uint32_t s = 0; s < 3; ++s) data.samples.push_back({{input, values_in(shape, low, high, s + 1)}});
  for (std::uint32_t s = 0; s < 4; ++s) data.held_out.push_back({{input, values_in(shape, low, high, s + 50)}});
  return data;
}

SearchOptions fp16_search(Fusion fusion = Fusion::kNone) {
  SearchOptions options;
  options.build = fp16_options(ConstraintMode::kObey, fusion, true);
  return options;
}

std::unique_ptr<Criterion> allclose(double atol, double rtol) {
  CompareOptions options;
  options.atol = atol;
  options.rtol = rtol;
  return make_tolerance_criterion(options);
}

std::vector<std::string> kept(const Answer& answer) {
  std::vector<std::string> names;
  for (const KeptLayer& layer : answer.kept) names.push_back(layer.name);
  return names;
}

Answer run(const SearchData& data, const Criterion& criterion, const SearchOptions& options) {
  Journal journal;
  return search_precisions(data, criterion, options, journal);
}

/// x @ a, + 65504, - 65504, @ a: the middle loses x in fp16.
std::shared_ptr<Network> saturating() {
  Model model;
  model.input("x", {8, 8});
  model.node("MatMul", {"x", "turn"}, {"first"}, "First");
  model.node("Add", {"first", "max"}, {"sum"}, "Add");
  model.node("Sub", {"sum", "max"}, {"difference"}, "Sub");
  model.node("MatMul", {"difference", "turn"}, {"y"}, "Last");
  std::vector<float> turn(64, 0.0f);
  for (std::size_t i = 0; i < 8; ++i) turn[i * 8 + 7 - i] = 1.0f;
  *model.graph().add_initializer() = float_tensor("turn", {8, 8}, turn);
  *model.graph().add_initializer() = float_tensor("max", {1}, {65504});
  model.output("y");
  return model.load();
}

TEST(Search, FindsTheLayersThatSaturateAndSaysWhy) {
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  const auto criterion = allclose(1e-3, 1e-2);
  const Answer answer = run(data, *criterion, fp16_search());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_THAT(kept(answer), ElementsAre("Add", "Sub"));
  EXPECT_LE(answer.evaluations, 8);
  for (const KeptLayer& layer : answer.kept) {
    EXPECT_EQ(layer.reason.kind, ReasonKind::kCancellation) << layer.reason.text;
    EXPECT_THAT(layer.reason.text, HasSubstr("where fp16 steps by 32"));
  }
  EXPECT_TRUE(answer.search.passed(0.5));
  ASSERT_TRUE(answer.held_out.has_value());
  EXPECT_TRUE(answer.held_out->passed());
}

TEST(Search, NeedsNothingWhereFusionKeepsTheSum) {
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  const Answer answer = run(data, *allclose(1e-3, 1e-2), fp16_search(Fusion::kFull));
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(answer.kept, IsEmpty());
  EXPECT_THAT(answer.message, HasSubstr("No layer needs more precision"));
}

/// A chain of products, one of which overflows inside: its values are 1e5 times larger, the next ones as much smaller.
std::shared_ptr<Network> planted() {
  Model model;
  model.input("x", {4, 16});
  const auto matrix = [&](const std::string& name, float scale, std::uint32_t seed) {
    const Tensor w = values_in({16, 16}, -0.4 * scale, 0.4 * scale, seed);
    *model.graph().add_initializer() = float_tensor(name, {16, 16}, floats(w));
  };
  std::string value = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    matrix("w" + n, i == 3 ? 2e5f : i == 4 ? 5e-6f : 1.0f, static_cast<std::uint32_t>(i + 1));
    model.node("MatMul", {value, "w" + n}, {"p" + n}, "Product" + n);
    value = "p" + n;
    if (i != 3) {
      model.node("Tanh", {value}, {"t" + n}, "Tanh" + n);
      value = "t" + n;
    }
  }
  model.node("Identity", {value}, {"y"}, "Out");
  model.output("y");
  return model.load();
}

TEST(Search, FindsPlantedOverflowExactly) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeMax, 1e-2);
  const Answer answer = run(data, *criterion, fp16_search());
  EXPECT_THAT(kept(answer), ElementsAre("Product3", "Product4"));
  EXPECT_LE(answer.evaluations, 4);
  EXPECT_EQ(answer.kept[0].reason.kind, ReasonKind::kOverflow);
  const Reason& reason = answer.kept[0].reason;
  EXPECT_GT(reason.largest, 65504);
  EXPECT_EQ(reason.low, Precision::kFP16);
  // Every element is counted once, and those of 2^16 and more are what overflows.
  ASSERT_FALSE(reason.exponents.empty());
  EXPECT_EQ(std::accumulate(reason.exponents.begin(), reason.exponents.end(), std::int64_t{0}), reason.total);
  std::int64_t beyond = 0;
  for (std::size_t i = 0; i < reason.exponents.size(); ++i)
    if (reason.first_exponent + static_cast<int>(i) >= 16) beyond += reason.exponents[i];
  EXPECT_EQ(beyond, reason.count);
  EXPECT_EQ(reason.first_exponent + static_cast<int>(reason.exponents.size()) - 1, std::ilogb(reason.largest));
  EXPECT_GT(answer.cost_share, 0.2);
  EXPECT_LT(answer.cost_share, 0.3);
  const SearchOptions both = [] {
    SearchOptions options = fp16_search();
    options.objective = Objective::kCheapest;
    return options;
  }();
  EXPECT_THAT(kept(run(data, *criterion, both)), ElementsAre("Product3", "Product4"));
}

TEST(Search, SaysThatItIsNotReachable) {
  SearchOptions options = fp16_search();
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  options.lower = {data.network->find_layer("Add")};
  const Answer answer = run(data, *allclose(1e-3, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kNotReachable);
  EXPECT_THAT(answer.message, HasSubstr("Not reachable"));
  EXPECT_EQ(answer.kept.size(), 3u);
}

TEST(Search, KeepsWhatTheUserKeeps) {
  SearchOptions options = fp16_search();
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  options.keep = {data.network->find_layer("Sub")};
  const Answer answer = run(data, *allclose(1e-3, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(kept(answer), ElementsAre("Add"));
}

TEST(Search, RefusesAnEmptySpace) {
  SearchOptions options = fp16_search();
  options.build.fp16 = false;
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  EXPECT_THROW(run(data, *allclose(1e-3, 1e-2), options), Error);
}

TEST(Search, IsTheSameAtAnyNumberOfThreadsAndFromTheJournal) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-4);
  SearchOptions options = fp16_search();
  options.shrink = true;
  Journal journal;
  const Answer one = search_precisions(data, *criterion, options, journal);
  options.build.threads = 2;
  const Answer two = run(data, *criterion, options);
  const std::size_t before = journal.trials().size();
  const Answer resumed = search_precisions(data, *criterion, options, journal);
  EXPECT_EQ(journal.trials().size(), before);
  for (const Answer* other : {&two, &resumed}) {
    EXPECT_EQ(kept(one), kept(*other));
    EXPECT_EQ(one.evaluations, other->evaluations);
    EXPECT_EQ(one.search.used, other->search.used);
    ASSERT_EQ(one.sensitivities.size(), other->sensitivities.size());
    for (std::size_t i = 0; i < one.sensitivities.size(); ++i)
      EXPECT_EQ(one.sensitivities[i].effect, other->sensitivities[i].effect);
  }
}

TEST(Search, ShrinkingLeavesNoLayerThatCouldGo) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-4);
  SearchOptions options = fp16_search();
  const Answer plain = run(data, *criterion, options);
  options.shrink = true;
  const Answer shrunk = run(data, *criterion, options);
  EXPECT_EQ(shrunk.verdict, Answer::Verdict::kFound);
  EXPECT_LE(shrunk.kept.size(), plain.kept.size());
  EXPECT_GT(shrunk.kept.size(), 2u);
  Trials trials(data.network, options.build, data.samples);
  const auto golden = trials.run(trials.full_precision());
  for (const KeptLayer& dropped : shrunk.kept) {
    std::vector<std::optional<DataType>> requested(data.network->layers.size());
    for (const KeptLayer& layer : shrunk.kept)
      if (layer.name != dropped.name)
        requested[static_cast<std::size_t>(data.network->find_layer(layer.name))] = DataType::kFloat32;
    EXPECT_FALSE(criterion->judge(golden, trials.run(trials.assign(requested))).passed(0.5)) << dropped.name;
  }
}

TEST(Search, GivesTheBestSoFarWhenALimitComes) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-4);
  SearchOptions options = fp16_search();
  options.max_trials = 1;
  const Answer limited = run(data, *criterion, options);
  EXPECT_LE(limited.evaluations, 1);
  EXPECT_THAT(limited.message, HasSubstr("the limit of 1 trials"));
  EXPECT_NE(limited.verdict, Answer::Verdict::kNotReachable);
  options.max_trials = 0;
  Journal journal;
  const Answer interrupted = search_precisions(data, *criterion, options, journal, [&](const SearchProgress& progress) {
    if (progress.trials >= 2) throw SearchInterrupted("an interruption");
  });
  EXPECT_THAT(interrupted.message, HasSubstr("an interruption"));
  EXPECT_EQ(interrupted.trials.size(), 2u);
}

/// (1 - mask) is exact in fp16, whatever is made of it: only the product with the lowest number overflows.
TEST(Search, BlamesOnlyTheLayerThatOverflowsInAMask) {
  Model model;
  model.input("x", {8});
  model.input("mask", {8});
  model.node("Sub", {"one", "mask"}, {"inverse"}, "Sub");
  model.node("Mul", {"inverse", "lowest"}, {"bias"}, "Mul");
  model.node("Add", {"x", "bias"}, {"scores"}, "Add");
  model.node("Softmax", {"scores"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("one", {1}, {1});
  *model.graph().add_initializer() = float_tensor("lowest", {1}, {-3.4e38f});
  model.output("y");
  SearchData data = data_for(model.load(), "x", {8}, -2, 2);
  for (auto* samples : {&data.samples, &data.held_out})
    for (TensorMap& sample : *samples) sample.push_back({"mask", Tensor::of<float>({8}, {1, 1, 1, 1, 1, 0, 0, 0})});
  SearchOptions options = fp16_search();
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 1e-2);
  const Answer repaired = run(data, *criterion, options);
  EXPECT_THAT(kept(repaired), IsEmpty());
  EXPECT_EQ(repaired.repairs.size(), 1u);
  options.repair = false;
  const Answer raised = run(data, *criterion, options);
  EXPECT_EQ(raised.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(kept(raised), ElementsAre("Mul"));
}

/// The layer that matters lies before a Round, through which no derivative leads.
TEST(Search, MeasuresWhatHasNoDerivative) {
  Model model;
  model.input("x", {16});
  model.node("Mul", {"x", "large"}, {"scaled"}, "Scale");
  model.node("Round", {"scaled"}, {"whole"}, "Round");
  model.node("Div", {"whole", "large"}, {"y"}, "Back");
  *model.graph().add_initializer() = float_tensor("large", {1}, {60000});
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {16}, 0.01, 0.02);
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeMax, 2e-4), fp16_search());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_THAT(kept(answer), ::testing::Contains("Scale"));
  EXPECT_TRUE(std::ranges::any_of(answer.sensitivities, [](const auto& s) { return s.name == "Scale" && s.measured; }));
}

/// fp16 by itself overflows; bf16 as the middle rung is enough for the first layer, not for the last.
TEST(Search, LowersKeptLayersToMiddleRungs) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  SearchOptions options = fp16_search();
  options.build.bf16 = true;
  options.build.fp16 = true;
  options.ladder = {Precision::kBF16, Precision::kFP32};
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-2);
  const Answer answer = run(data, *criterion, options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(kept(answer), ElementsAre("Product3", "Product4"));
  for (const KeptLayer& layer : answer.kept) EXPECT_EQ(layer.precision, Precision::kBF16) << layer.name;
}

}  // namespace
}  // namespace ulpscope::testing
