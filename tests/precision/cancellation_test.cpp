// Differences without digits ahead of singular functions: variances as E[x^2] - E[x]^2, and what looks like them.
#include "precision/cancellation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kRow = 64;

void set_ints(onnx::NodeProto& node, const char* name, std::initializer_list<std::int64_t> values) {
  auto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INTS);
  for (const std::int64_t value : values) attribute.add_ints(value);
}

void add_scalar(Model& model, const std::string& name, float value) {
  *model.graph().add_initializer() = float_tensor(name, {1}, {value});
}

/// (x - E[x]) / sqrt(E[x^2] - E[x]^2 + epsilon), and a product behind it.
std::shared_ptr<const Network> variance_of_moments(float epsilon = 1e-6F) {
  Model model;
  model.input("x", {4, kRow});
  model.node("Mul", {"x", "x"}, {"squares"}, "Square");
  set_ints(model.node("ReduceMean", {"squares"}, {"second"}, "Second"), "axes", {-1});
  set_ints(model.node("ReduceMean", {"x"}, {"first"}, "First"), "axes", {-1});
  model.node("Mul", {"first", "first"}, {"first2"}, "SquareOfFirst");
  model.node("Sub", {"second", "first2"}, {"variance"}, "Variance");
  add_scalar(model, "epsilon", epsilon);
  model.node("Add", {"variance", "epsilon"}, {"above"}, "Epsilon");
  model.node("Sqrt", {"above"}, {"deviation"}, "Deviation");
  model.node("Sub", {"x", "first"}, {"centered"}, "Center");
  model.node("Div", {"centered", "deviation"}, {"y"}, "Divide");
  model.output("y");
  return model.load();
}

/// Rows around `mean`.
TensorMap rows(double mean, double spread, std::uint32_t seed) {
  return {{"x", values_in({4, kRow}, mean - spread, mean + spread, seed)}};
}

std::vector<SingularCancellation> found_in(const std::shared_ptr<const Network>& network,
                                           const std::vector<TensorMap>& samples,
                                           const BuildOptions& build = fp16_search().build) {
  Trials trials(network, build, samples);
  SearchTask task = fp16_search();
  task.build = build;
  const Assignment low = trials.assign(Requests(network->layers.size()));
  return find_singular_cancellations(trials, low, search_candidates(*trials.specialization(), low, task),
                                     samples.size());
}

std::vector<std::string> names(const Network& network, const std::vector<LayerId>& layers) {
  std::vector<std::string> result;
  for (LayerId id : layers) result.push_back(network.layer(id).name);
  return result;
}

TEST(Cancellation, IsFoundWhereTheMeanIsLargeBesideTheDeviation) {
  const auto network = variance_of_moments();
  // (|a| + |b|) / |a - b| is 2 mean^2 / variance = 6 (mean / spread)^2.
  const auto found = found_in(network, {rows(1, 1, 1), rows(10, 0.5, 2)});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(network->layer(found[0].difference).name, "Variance");
  EXPECT_EQ(network->layer(found[0].singular).name, "Deviation");
  EXPECT_EQ(found[0].sample, 1u);
  EXPECT_NEAR(found[0].loss, 6 * 400, 800);
  EXPECT_EQ(found[0].digits, 12);
  // Both operands come from x, which is rounded alike for both; so does the mean that the numerator reads.
  EXPECT_THAT(names(*network, found[0].layers),
              UnorderedElementsAre("Square", "Second", "First", "SquareOfFirst", "Variance", "Epsilon", "Deviation"));
  EXPECT_THAT(text_of(*network, found[0]), AllOf(HasSubstr("'Variance' (Sub)"), HasSubstr("'Deviation' (Sqrt)")));
}

TEST(Cancellation, NeedsLostDigits) {
  EXPECT_THAT(found_in(variance_of_moments(), {rows(0, 1, 1), rows(2, 1, 2)}), IsEmpty());
  // bf16 has three digits less: 6 * 4 / 256 * 4 = 0.4, 6 * 16 / 256 * 4 = 1.5.
  BuildOptions bf16 = fp16_search().build;
  bf16.enabled.set(Precision::kFP16, false);
  bf16.enabled.set(Precision::kBF16);
  EXPECT_THAT(found_in(variance_of_moments(), {rows(4, 1, 1)}), IsEmpty());
  EXPECT_EQ(found_in(variance_of_moments(), {rows(4, 1, 1)}, bf16).size(), 1u);
}

TEST(Cancellation, IsNoneWhereAnEpsilonHidesIt) {
  EXPECT_EQ(found_in(variance_of_moments(1e-6F), {rows(10, 0.5, 2)}).size(), 1u);
  EXPECT_THAT(found_in(variance_of_moments(10), {rows(10, 0.5, 2)}), IsEmpty());
}

TEST(Cancellation, OfNumeratorsAndOfWhatIsSquaredIsNone) {
  Model model;
  model.input("x", {4, kRow});
  set_ints(model.node("ReduceMean", {"x"}, {"mean"}, "Mean"), "axes", {-1});
  model.node("Sub", {"x", "mean"}, {"centered"}, "Center");
  model.node("Mul", {"centered", "centered"}, {"squares"}, "Square");
  set_ints(model.node("ReduceMean", {"squares"}, {"variance"}, "Variance"), "axes", {-1});
  model.node("Sqrt", {"variance"}, {"deviation"}, "Deviation");
  model.node("Div", {"centered", "deviation"}, {"y"}, "Divide");
  model.output("y");
  EXPECT_THAT(found_in(model.load(), {rows(100, 0.1, 1)}), IsEmpty());
}

/// Differences of two inputs, through what keeps zeros at zero, to each kind of singular function.
TEST(Cancellation, IsSeenThroughWhatPassesItOn) {
  for (const std::string function : {"Sqrt", "Reciprocal", "Log", "Div", "Pow"}) {
    Model model;
    model.input("a", {4, 8});
    model.input("b", {8});
    model.node("Sub", {"a", "b"}, {"difference"}, "Difference");
    model.node("Abs", {"difference"}, {"magnitude"}, "Magnitude");
    add_scalar(model, "three", 3);
    model.node("Mul", {"three", "magnitude"}, {"scaled"}, "Scale");
    set_ints(model.node("Transpose", {"scaled"}, {"turned"}, "Turn"), "perm", {1, 0});
    add_scalar(model, "power", -0.5F);
    if (function == "Div")
      model.node(function, {"three", "turned"}, {"y"}, "Function");
    else if (function == "Pow")
      model.node(function, {"turned", "power"}, {"y"}, "Function");
    else
      model.node(function, {"turned"}, {"y"}, "Function");
    model.output("y");
    const auto network = model.load();
    const TensorMap close{{"a", values_in({4, 8}, 1, 1.001, 1)}, {"b", values_in({8}, 1, 1.001, 2)}};
    const TensorMap apart{{"a", values_in({4, 8}, 2, 3, 1)}, {"b", values_in({8}, 0, 1, 2)}};
    ASSERT_EQ(found_in(network, {close}).size(), 1u) << function;
    EXPECT_THAT(names(*network, found_in(network, {close})[0].layers),
                ElementsAre("Difference", "Magnitude", "Scale", "Function"))
        << function;
    EXPECT_THAT(found_in(network, {apart}), IsEmpty()) << function;
  }
}

TEST(Search, KeepsCancellationsAheadOfSingularFunctionsUnlessTheMarginIsGiven) {
  SearchData data;
  data.network = variance_of_moments();
  for (std::uint32_t s = 0; s < 4; ++s) data.samples.push_back(rows(10, 0.7, s + 1));
  SearchTask task = fp16_search();
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 0.9);  // Nothing has to be kept for it.
  const Answer answer = run(data, *criterion, task);
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound);
  EXPECT_EQ(answer.margin, 0.03);  // The narrowest, however close together the samples lie.
  EXPECT_LE(answer.search.used, 0.03);
  const auto by_name = kept_rows(answer);
  ASSERT_TRUE(by_name.contains("Variance"));
  EXPECT_EQ(by_name.at("Variance").reason.kind, ReasonKind::kSingular);
  EXPECT_THAT(by_name.at("Variance").reason.text, HasSubstr("ahead of a singular function"));
  EXPECT_THAT(kept(answer), Contains("SquareOfFirst"));
  EXPECT_THAT(kept(answer), Not(Contains("Divide")));
  EXPECT_EQ(answer.candidates, 9);
  task.margin = 0.5;
  const Answer given = run(data, *criterion, task);
  EXPECT_EQ(given.margin, 0.5);
  EXPECT_THAT(kept(given), Not(Contains("Square")));
}

}  // namespace
}  // namespace ulpscope::testing
