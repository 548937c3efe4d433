// The search, on networks whose answer is known by construction.
#include "precision/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "engine/build_helpers.h"
#include "precision/search_helpers.h"
#include "precision/search_space.h"
#include "ulpscope/error.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(Search, LooksAtItsLimitsBetweenHeldOutSamples) {
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  int looks = 0;
  Journal journal;
  search_precisions(data, *allclose(1e-3, 1e-2), fp16_search(), journal, [&](const SearchProgress& progress) {
    looks += progress.stage == "checking held-out samples" ? 1 : 0;
  });
  // Their golden results and at least one check: each before every sample.
  EXPECT_GE(looks, 2 * static_cast<int>(data.held_out.size()));
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
  const SearchTask both = [] {
    SearchTask options = fp16_search();
    options.objective = Objective::kCheapest;
    return options;
  }();
  EXPECT_THAT(kept(run(data, *criterion, both)), ElementsAre("Product3", "Product4"));
}

TEST(Search, SaysThatItIsNotReachable) {
  SearchTask options = fp16_search();
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  options.lower = {data.network->find_layer("Add")};
  const Answer answer = run(data, *allclose(1e-3, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kNotReachable);
  EXPECT_THAT(answer.message, HasSubstr("Not reachable"));
  EXPECT_EQ(answer.kept.size(), 3u);
}

TEST(Search, KeepsWhatTheUserKeeps) {
  SearchTask options = fp16_search();
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  options.keep = {data.network->find_layer("Sub")};
  const Answer answer = run(data, *allclose(1e-3, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(kept(answer), ElementsAre("Add"));
}

TEST(Search, RefusesAnEmptySpace) {
  SearchTask options = fp16_search();
  options.build.enabled.set(Precision::kFP16, false);
  const SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  EXPECT_THROW(run(data, *allclose(1e-3, 1e-2), options), Error);
}

TEST(Search, IsTheSameAtAnyNumberOfThreadsAndFromTheJournal) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-4);
  SearchTask options = fp16_search();
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
  SearchTask options = fp16_search();
  const Answer plain = run(data, *criterion, options);
  options.shrink = true;
  const Answer shrunk = run(data, *criterion, options);
  EXPECT_EQ(shrunk.verdict, Answer::Verdict::kFound);
  EXPECT_LE(shrunk.kept.size(), plain.kept.size());
  EXPECT_GT(shrunk.kept.size(), 2u);
  Trials trials(data.network, options.build, data.samples);
  const auto golden = trials.run(trials.full_precision());
  for (const KeptLayer& dropped : shrunk.kept) {
    Requests requested(data.network->layers.size());
    for (const KeptLayer& layer : shrunk.kept)
      if (layer.name != dropped.name) requested[data.network->find_layer(layer.name)] = DataType::kFloat32;
    EXPECT_FALSE(criterion->judge(golden, trials.run(trials.assign(requested))).passed(0.5)) << dropped.name;
  }
}

TEST(Search, GivesTheBestSoFarWhenALimitComes) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-4);
  SearchTask options = fp16_search();
  options.max_trials = 1;
  const Answer limited = run(data, *criterion, options);
  EXPECT_LE(limited.evaluations, 1);
  EXPECT_THAT(limited.message, HasSubstr("the limit of 1 trial"));
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
  SearchTask options = fp16_search();
  options.repair = true;
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
  SearchTask options = fp16_search();
  options.build.enabled.set(Precision::kBF16);
  options.build.enabled.set(Precision::kFP16);
  options.ladder = {Precision::kBF16, Precision::kFP32};
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 5e-2);
  const Answer answer = run(data, *criterion, options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_THAT(kept(answer), ElementsAre("Product3", "Product4"));
  for (const KeptLayer& layer : answer.kept) EXPECT_EQ(layer.precision, Precision::kBF16) << layer.name;
}

/// tf32 has the range that the products need; layers that are no products have float32 instead.
TEST(Search, RaisesProductsToTf32AndOthersToFp32) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  SearchTask options = fp16_search();
  options.build.enabled.set(Precision::kTF32);
  options.ladder = {Precision::kTF32, Precision::kFP32};
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeMax, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_THAT(kept(answer), ElementsAre("Product3", "Product4"));
  for (const KeptLayer& layer : answer.kept) EXPECT_EQ(layer.precision, Precision::kTF32) << layer.name;

  SearchSpace space(data.network, options, data.samples);
  const Levels levels = space.raised_to(Precision::kTF32);
  const Assignment raised = space.assignment(levels);
  std::size_t products = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const LayerId id = space.candidates()[i];
    const bool product = data.network->layer(id).op->kind == OpKind::kContraction;
    products += product ? 1 : 0;
    EXPECT_EQ(raised.precision[id], product ? Precision::kTF32 : Precision::kFP32);
    EXPECT_EQ(space.precision(i, levels[i]), raised.precision[id]) << "what an answer says of it";
    EXPECT_EQ(space.effective_level(i, 2), product ? 2 : 1) << "no two levels of one precision";
  }
  EXPECT_EQ(products, 8u);
  EXPECT_EQ(space.levels_of(space.names(levels)), levels);
}

TEST(Search, NeedsNoLayersBeyondTf32WhereThatIsTheLowest) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  SearchTask options = fp16_search();
  options.build.enabled = {Precision::kTF32};
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeMax, 1e-2), options);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_EQ(answer.candidates, 8) << "the products";
  EXPECT_THAT(kept(answer), IsEmpty());
}

/// y = x > 0 ? (x + 65504) - 65504 : x, in the body of an If.
TEST(Search, RaisesTheBodiesOfControlFlow) {
  Model model;
  model.input("x", {4});
  add_saturating_choice(model, "chosen");
  model.node("Neg", {"chosen"}, {"y"}, "Last");
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {4}, 1, 2);
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_THAT(kept(answer), ElementsAre("Add", "Sub"));
}

/// The kept layers by name.
TEST(Search, RefusesGoldenOutputsThatAreNoNumbers) {
  Model model;
  model.input("x", {4});
  model.node("Mul", {"x", "two"}, {"m"}, "Double");
  model.node("Sqrt", {"m"}, {"y"}, "Root");
  *model.graph().add_initializer() = float_tensor("two", {1}, {2});
  model.output("y");
  const auto network = model.load();
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 1e-2);
  const auto message = [&](const SearchData& data) -> std::string {
    try {
      run(data, *criterion, fp16_search());
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_THAT(message(data_for(network, "x", {4}, -1, 1)),
              HasSubstr("[golden] output 'y', sample 0: expected numbers"));
  SearchData data = data_for(network, "x", {4}, 1, 2);
  data.held_out[2][0].tensor = values_in({4}, -2, -1, 1);
  EXPECT_THAT(message(data), HasSubstr("held-out samples"));
}

/// The weights are infinite in fp16, and inf - inf is no number, but tanh has no gradient where it saturates.
TEST(Search, DoubtsOverflowsThatHaveNoGradient) {
  Model model;
  model.input("x", {4, 16});
  std::string value = "x";
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    const float scale = i == 4 ? 1e6f : 1.0f;
    const Tensor w = values_in({16, 16}, -0.4 * scale, 0.4 * scale, static_cast<std::uint32_t>(i + 1));
    *model.graph().add_initializer() = float_tensor("w" + n, {16, 16}, floats(w));
    model.node("MatMul", {value, "w" + n}, {"p" + n}, "Product" + n);
    model.node("Tanh", {"p" + n}, {"t" + n}, "Tanh" + n);
    value = "t" + n;
  }
  model.node("Identity", {value}, {"y"}, "Out");
  model.output("y");
  const SearchData data = data_for(model.load(), "x", {4, 16}, 0.5, 1);
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 5e-2), fp16_search());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_THAT(kept(answer), ElementsAre("Product4"));
  EXPECT_LE(answer.evaluations, 6);
}

/// 0 times a constant beyond fp16: the factor 0 is exact, whatever its gradient.
TEST(Search, BlamesNoLayerThatRoundsNothing) {
  Model model;
  model.input("x", {4});
  model.node("Sub", {"one", "mask"}, {"absent"}, "Sub");
  model.node("Mul", {"absent", "lowest"}, {"bias"}, "Mul");
  model.node("Add", {"x", "bias"}, {"scores"}, "Add");
  model.node("Softmax", {"scores"}, {"y"}, "Softmax");
  *model.graph().add_initializer() = float_tensor("one", {1}, {1});
  *model.graph().add_initializer() = float_tensor("lowest", {1}, {-3.4e38f});
  model.input("mask", {4});
  model.output("y");
  SearchData data;
  data.network = model.load();
  for (std::uint32_t s = 0; s < 3; ++s) {
    Tensor mask(DataType::kFloat32, {4});
    for (int i = 0; i < 4; ++i) mask.data<float>()[i] = i < 3 ? 1.0f : 0.0f;
    data.samples.push_back({{"x", values_in({4}, -1, 1, s + 1)}, {"mask", mask}});
  }
  SearchTask options = fp16_search();
  options.repair = false;
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), options);
  EXPECT_THAT(kept(answer), ElementsAre("Mul")) << answer.message;
}

/// Eight branches, each of which loses its input in fp16; an input of 0 does not show it.
std::shared_ptr<Network> branches() {
  Model model;
  for (int i = 0; i < 8; ++i) {
    const std::string n = std::to_string(i);
    model.input("x" + n, {4});
    model.node("Add", {"x" + n, "max"}, {"sum" + n}, "Add" + n);
    model.node("Sub", {"sum" + n, "max"}, {"y" + n}, "Sub" + n);
    model.output("y" + n);
  }
  *model.graph().add_initializer() = float_tensor("max", {1}, {65504});
  return model.load();
}

TEST(Search, RaisesAsFewLayersAsHeldOutSamplesNeed) {
  SearchData data;
  data.network = branches();
  for (auto* samples : {&data.samples, &data.held_out}) {
    TensorMap sample;
    for (int i = 0; i < 8; ++i)
      sample.push_back({"x" + std::to_string(i), i < (samples == &data.samples ? 3 : 6)
                                                     ? values_in({4}, 1, 2, static_cast<std::uint32_t>(i + 1))
                                                     : values_in({4}, 0, 0, 1)});
    samples->push_back(sample);
  }
  const auto criterion = allclose(1e-3, 1e-2);
  const Answer whole = run(data, *criterion, fp16_search());
  EXPECT_EQ(whole.verdict, Answer::Verdict::kFound) << whole.message;
  EXPECT_EQ(whole.kept.size(), 12u);
  // Wherever it ends, what was found has passed both.
  int found = 0;
  for (int trials = 1; trials <= whole.evaluations; ++trials) {
    SearchTask options = fp16_search();
    options.max_trials = trials;
    const Answer answer = run(data, *criterion, options);
    if (answer.verdict != Answer::Verdict::kFound) continue;
    ++found;
    ASSERT_TRUE(answer.held_out && answer.held_out->passed()) << trials << " trials: " << answer.message;
    EXPECT_TRUE(answer.search.passed());
    EXPECT_GE(answer.kept.size(), 12u);
  }
  EXPECT_GE(found, 2);
}

TEST(Search, ChecksTheHeldOutSamplesWhenTheTrialsHaveRunOut) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  SearchTask options = fp16_search();
  options.max_trials = 2;  // Everything low fails, the first head of the order passes.
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 5e-2), options);
  EXPECT_EQ(answer.evaluations, 2);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  ASSERT_TRUE(answer.held_out.has_value());
  EXPECT_EQ(answer.held_out_passed, 4);
}

TEST(Search, CountsTheHeldOutSamplesThatPass) {
  SearchData data = data_for(saturating(), "x", {8, 8}, 1, 2);
  // With one golden output that nothing can meet, one of the two samples of validation passes.
  Trials trials(data.network, fp16_search().build, data.held_out);
  data.held_out_golden = trials.run(trials.full_precision());
  data.held_out_golden[1][0].tensor = values_in({8, 8}, 5, 6, 1);
  Journal journal;
  const auto criterion = allclose(1e-3, 1e-2);
  for (int turn = 0; turn < 2; ++turn) {  // The second from the journal.
    const Answer answer = search_precisions(data, *criterion, fp16_search(), journal);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFailsHeldOut);
    EXPECT_EQ(answer.held_out_samples, 2);
    EXPECT_EQ(answer.held_out_passed, 1);
  }
}

/// A layer whose lowest precision is the middle rung is not raised to it.
TEST(Search, RaisesNoLayerToWhatItHas) {
  const SearchData data = data_for(planted(), "x", {4, 16}, -1, 1);
  SearchTask options = fp16_search();
  options.ladder = {Precision::kFP16, Precision::kFP32};
  const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 5e-2), options);
  EXPECT_THAT(kept(answer), ElementsAre("Product3", "Product4"));
  for (const KeptLayer& layer : answer.kept) EXPECT_EQ(layer.precision, Precision::kFP32);
}

}  // namespace
}  // namespace ulpscope::testing
