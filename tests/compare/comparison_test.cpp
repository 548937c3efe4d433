#include "compare/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "compare/compare_functions.h"
#include "compare/difference.h"
#include "compare/postprocess.h"
#include "compare/validate.h"
#include "log_capture.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using testing::ElementsAre;

IterationResult result(const std::string& runner, TensorMap outputs) {
  return {std::move(outputs), std::nullopt, runner};
}

RunResults two(TensorMap first, TensorMap second) {
  return {{"A", {result("A", std::move(first))}}, {"B", {result("B", std::move(second))}}};
}

Tensor floats(std::initializer_list<float> values) {
  return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
}

CompareOptions options_for(const std::string& stat, double tolerance) {
  CompareOptions options;
  options.error_stat = stat;
  options.atol = tolerance;
  options.rtol = tolerance;
  return options;
}

bool passes(const Tensor& a, const Tensor& b, const CompareOptions& options) {
  return compare_accuracy(two({{"y", a}}, {{"y", b}}), {compare_function("simple", options)}).passed();
}

TEST(Comparison, LogsWhatPolygraphyLogged) {
  LogCapture log;
  CompareOptions options;
  options.atol = 0.2;
  options.error_stat = std::string("mean");
  const Tensor a = Tensor::of<float>({2, 2}, {1, 2, 3, 4}), b = Tensor::of<float>({2, 2}, {1, 2, 3, 4.5});
  EXPECT_TRUE(compare_accuracy(two({{"y", a}}, {{"y", b}}), {compare_function("simple", options)}).passed());
  EXPECT_THAT(
      log.lines(),
      ElementsAre("[I] Accuracy Comparison | A vs. B",
                  "[I]     Comparing Output: 'y' (dtype=float32, shape=(2, 2)) with 'y' (dtype=float32, shape=(2, 2))",
                  "[I]         Tolerance: [abs=0.2, rel=1e-05] | Checking mean error",
                  "[I]         A: y | Stats: mean=2.5, std-dev=1.118, var=1.25, median=2.5, min=1 at (0, 0), max=4 at "
                  "(1, 1), avg-magnitude=2.5, p90=3.7, p95=3.85, p99=3.97",
                  "[I]         B: y | Stats: mean=2.625, std-dev=1.293, var=1.6719, median=2.5, min=1 at (0, 0), "
                  "max=4.5 at (1, 1), avg-magnitude=2.625, p90=4.05, p95=4.275, p99=4.455",
                  "[I]         Error Metrics: y",
                  "[I]             Minimum Required Tolerance: mean error | [abs=0.125] OR [rel=0.027778]",
                  "[I]             Absolute Difference | Stats: mean=0.125, std-dev=0.21651, var=0.046875, median=0, "
                  "min=0 at (0, 0), max=0.5 at (1, 1), avg-magnitude=0.125, p90=0.35, p95=0.425, "
                  "p99=0.485",
                  "[I]             Relative Difference | Stats: mean=0.027778, std-dev=0.048113, var=0.0023148, "
                  "median=0, min=0 at (0, 0), max=0.11111 at (1, 1), avg-magnitude=0.027778, "
                  "p90=0.077778, p95=0.094444, p99=0.10778",
                  "[I]         PASSED | Output: 'y' | Difference is within tolerance (rel=1e-05, abs=0.2)",
                  "[I]     PASSED | All outputs matched | Outputs: ['y']",
                  "[I] Accuracy Summary | A vs. B | Passed: 1/1 iterations | Pass Rate: 100.00%"));
}

TEST(Comparison, SeveralIterationsAreNumberedAndCounted) {
  LogCapture log;
  RunResults results = two({{"y", floats({1})}}, {{"y", floats({1})}});
  results[0].second.push_back(result("A", {{"y", floats({2})}}));
  results[1].second.push_back(result("B", {{"y", floats({3})}}));
  const AccuracyResult accuracy = compare_accuracy(results, {compare_function("simple", {})});
  EXPECT_FALSE(accuracy.passed());
  EXPECT_EQ(accuracy.pairs[0].passed_iterations(), 1);
  EXPECT_TRUE(log.has("[I]     Iteration: 1"));
  EXPECT_TRUE(log.has("[I]         Comparing Output: 'y'"));
  EXPECT_TRUE(log.has("[E]             FAILED | Output: 'y' | Difference exceeds tolerance (rel=1e-05, abs=1e-05)"));
  EXPECT_TRUE(log.has("[E] Accuracy Summary | A vs. B | Passed: 1/2 iterations | Pass Rate: 50.00%"));
}

TEST(Comparison, EveryRunnerMeetsTheNext) {
  RunResults results = two({{"y", floats({1})}}, {{"y", floats({1})}});
  results.push_back({"C", {result("C", {{"y", floats({2})}})}});
  const AccuracyResult accuracy = compare_accuracy(results, {compare_function("simple", {})});
  ASSERT_EQ(accuracy.pairs.size(), 2u);
  EXPECT_TRUE(accuracy.pairs[0].passed());
  EXPECT_FALSE(accuracy.pairs[1].passed());
  results.resize(1);
  EXPECT_TRUE(compare_accuracy(results, {compare_function("simple", {})}).passed());
}

TEST(Comparison, StatisticsDecide) {
  const Tensor a = floats({1, 1, 1, 1, 1}), b = floats({1, 1, 1, 1.5, 1.5});
  EXPECT_FALSE(passes(a, b, options_for("elemwise", 0.3)));
  EXPECT_FALSE(passes(a, b, options_for("max", 0.3)));
  EXPECT_TRUE(passes(a, b, options_for("mean", 0.3)));
  EXPECT_TRUE(passes(a, b, options_for("median", 0)));
  CompareOptions quantile = options_for("quantile", 0);
  quantile.error_quantile = 0.5;
  EXPECT_TRUE(passes(a, b, quantile));
  quantile.error_quantile = 0.9;
  EXPECT_FALSE(passes(a, b, quantile));
}

TEST(Comparison, OneToleranceIsEnough) {
  // Element 0 needs the absolute tolerance and element 1 the relative one; their maxima satisfy neither alone.
  const Tensor a = floats({0.001f, 1001}), b = floats({0.002f, 1000});
  CompareOptions options = options_for("elemwise", 0.01);
  EXPECT_TRUE(passes(a, b, options));
  options.error_stat = std::string("max");
  EXPECT_FALSE(passes(a, b, options));
}

TEST(Comparison, NanAndInfinityFail) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  for (const char* stat : {"elemwise", "max", "mean", "median", "quantile"}) {
    EXPECT_FALSE(passes(floats({nan}), floats({nan}), options_for(stat, 1))) << stat;
    EXPECT_FALSE(passes(floats({inf}), floats({inf}), options_for(stat, 1))) << stat;
    CompareOptions equal = options_for(stat, 1);
    equal.infinities_compare_equal = true;
    EXPECT_FALSE(passes(floats({inf}), floats({-inf}), equal)) << stat;
  }
  CompareOptions equal = options_for("max", 1);
  equal.infinities_compare_equal = true;
  EXPECT_EQ(difference(floats({inf, 1}), floats({inf, 2}), true).absolute.data<double>()[0], 0);
}

TEST(Comparison, EmptyOutputsPassElementwise) {
  const Tensor empty(DataType::kFloat32, {0});
  EXPECT_TRUE(passes(empty, empty, options_for("elemwise", 0)));
  EXPECT_FALSE(passes(empty, empty, options_for("mean", 1)));
}

TEST(Comparison, OptionsArePerOutput) {
  CompareOptions options;
  options.atol.set("y", 2.0);
  const RunResults results = two({{"y", floats({1})}, {"z", floats({1})}}, {{"y", floats({2})}, {"z", floats({2})}});
  const AccuracyResult accuracy = compare_accuracy(results, {compare_function("simple", options)});
  const IterationVerdict& verdicts = accuracy.pairs[0].iterations[0];
  EXPECT_TRUE(verdicts[0].passed);
  EXPECT_FALSE(verdicts[1].passed);
  EXPECT_EQ(verdicts[1].metrics->max_abs, 1);
}

TEST(Comparison, CosineSimilarityOfHugeAndOfTinyValues) {
  const auto similarity = [](double p, double q, double x, double y) {
    return metric_value(Metric::kCosineSimilarity, Tensor::of<double>({2}, {p, q}), Tensor::of<double>({2}, {x, y}));
  };
  for (const auto& [one, other] : {std::pair(1e200, 1e200), std::pair(1e-200, 1e200), std::pair(5e-324, 1.0)}) {
    EXPECT_NEAR(similarity(one, one, other, other), 1, 1e-12) << one;
    EXPECT_NEAR(similarity(one, one, -other, other), 0, 1e-12) << one;
    EXPECT_NEAR(similarity(one, -one, -other, other), -1, 1e-12) << one;
  }
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(similarity(infinity, 1, 1, 1)));
  EXPECT_EQ(similarity(0, 0, 1e-300, 0), 0);
}

TEST(Comparison, FailFastStopsAtTheFirstFailure) {
  LogCapture log;
  CompareOptions options;
  options.fail_fast = true;
  const RunResults results = two({{"y", floats({1})}, {"z", floats({1})}}, {{"y", floats({2})}, {"z", floats({2})}});
  const AccuracyResult accuracy = compare_accuracy(results, {compare_function("simple", options)}, {.fail_fast = true});
  EXPECT_EQ(accuracy.pairs[0].iterations[0].size(), 1u);
  EXPECT_FALSE(accuracy.passed());
  EXPECT_FALSE(log.has("Accuracy Summary"));
}

TEST(Comparison, ShapesMustMatchUnlessAllowed) {
  const Tensor a = Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5}), b = Tensor::of<float>({3, 2}, {0, 3, 1, 4, 2, 5});
  LogCapture log;
  CompareOptions options;
  EXPECT_FALSE(passes(a, b, options));
  EXPECT_TRUE(log.has("[E]         FAILED | Output: `y` | Will not compare outputs of different shapes."));
  EXPECT_TRUE(log.has("A: y | Stats: mean=2.5"));
  EXPECT_TRUE(log.has("B: y | Stats: mean=2.5"));
  EXPECT_TRUE(log.has("---- Histogram ----"));
  options.check_shapes = false;
  EXPECT_TRUE(passes(a, b, options));
  EXPECT_TRUE(passes(a, Tensor::of<float>({6}, {0, 1, 2, 3, 4, 5}), options));
  EXPECT_FALSE(passes(a, floats({1, 2}), options));
}

TEST(Comparison, OutputsArePairedByNameThenLikenessThenPlace) {
  LogCapture log;
  const IterationResult first =
      result("A", {{"y", floats({1})}, {"logits", floats({1})}, {"third", floats({1})}, {"x", floats({1})}});
  const IterationResult second =
      result("B", {{"model/Logits:0", floats({1})}, {"y", floats({1})}, {"other", floats({1})}});
  EXPECT_EQ(pair_output(first, 0, second), "y");
  EXPECT_EQ(pair_output(first, 1, second), "model/Logits:0");
  EXPECT_EQ(pair_output(first, 2, second), "other");
  EXPECT_EQ(pair_output(first, 3, second), std::nullopt);
  EXPECT_TRUE(log.has("[W] Output names did not match exactly. Assuming B output: other corresponds to output: third"));
}

TEST(Comparison, WithoutACommonOutputItIsAnError) {
  EXPECT_THROW(compare_accuracy(two({{"y", floats({1})}}, {}), {compare_function("simple", {})}), Error);
}

TEST(Comparison, UnknownNamesAndStatistics) {
  LogCapture log;
  CompareOptions options;
  options.atol.set("nobody", 1);
  passes(floats({1}), floats({1}), options);
  EXPECT_TRUE(log.has("[W]     Extra items in the atol dictionary: {'nobody'}"));
  options.error_stat = std::string("average");
  try {
    compare_function("simple", options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("Invalid choice for check_error_stat: average"));
  }
  EXPECT_THROW(compare_function("other", {}), Error);
}

TEST(Comparison, Indices) {
  CompareOptions options;
  const Tensor a = Tensor::of<std::int64_t>({3}, {0, 1, 2}), b = Tensor::of<std::int64_t>({3}, {1, 0, 2});
  const auto compare = [&] {
    return compare_accuracy(two({{"y", a}}, {{"y", b}}), {compare_function("indices", options)}).passed();
  };
  EXPECT_FALSE(compare());
  options.index_tolerance = std::int64_t{1};
  EXPECT_TRUE(compare());
}

TEST(Comparison, Metrics) {
  LogCapture log;
  const auto passed = [](const char* name, const Tensor& a, const Tensor& b) {
    return compare_accuracy(two({{"y", a}}, {{"y", b}}), {compare_function(name, {})}).passed();
  };
  EXPECT_TRUE(passed("distance_metrics", floats({3, 4}), floats({3, 4})));
  EXPECT_FALSE(passed("l2", floats({3, 4}), floats({0, 0})));
  EXPECT_TRUE(log.has("[E]         L2 Norm: 5 (tolerance: 1e-05) | FAILED"));
  EXPECT_TRUE(passed("cosine_similarity", floats({3, 4}), floats({6, 8})));
  EXPECT_FALSE(passed("cosine_similarity", floats({1, 0}), floats({0, 1})));
  EXPECT_FALSE(passed("psnr", floats({1, 1}), floats({1, 0.5f})));
  EXPECT_TRUE(passed("snr", floats({1, 1}), floats({1, 0.99f})));
  EXPECT_FALSE(passed("snr", floats({1, std::numeric_limits<float>::quiet_NaN()}), floats({1, 1})));
}

TEST(Difference, FollowsNumpysTypes) {
  const auto types = [](DataType a, DataType b) {
    const Difference d = difference(floats({1}).cast(a), floats({1}).cast(b));
    return std::pair(d.absolute.type(), d.relative.type());
  };
  EXPECT_EQ(types(DataType::kFloat16, DataType::kFloat32), (std::pair(DataType::kFloat32, DataType::kFloat32)));
  EXPECT_EQ(types(DataType::kInt8, DataType::kUInt8), (std::pair(DataType::kInt32, DataType::kFloat64)));
  EXPECT_EQ(types(DataType::kUInt32, DataType::kInt8), (std::pair(DataType::kInt64, DataType::kFloat64)));
  EXPECT_EQ(types(DataType::kBool, DataType::kBool), (std::pair(DataType::kBool, DataType::kFloat64)));
  EXPECT_EQ(types(DataType::kFloat32, DataType::kInt32), (std::pair(DataType::kFloat64, DataType::kFloat64)));
  EXPECT_EQ(types(DataType::kUInt64, DataType::kInt64), (std::pair(DataType::kFloat64, DataType::kFloat64)));
}

TEST(TopK, EqualValuesKeepTheirOrderAndNanComesLast) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor indices = top_k_indices(floats({1, nan, 5, 5, 0}), {9, -1});
  EXPECT_THAT(indices.values<std::int64_t>(), ElementsAre(2, 3, 0, 4, 1));
  EXPECT_THROW(top_k_indices(floats({1}), {1, 1}), Error);
  EXPECT_THROW(top_k_indices(Tensor::scalar<float>(1), {1, -1}), Error);
}

TEST(TopK, OnlyNamedOutputsChange) {
  RunResults results = two({{"y", floats({1, 2})}, {"z", floats({1, 2})}}, {});
  PerName<TopK> top;
  top.set("z", {1, 0});
  apply_top_k(results, top);
  EXPECT_EQ(results[0].second[0].find("y")->type(), DataType::kFloat32);
  EXPECT_EQ(results[0].second[0].find("z")->data<std::int64_t>()[0], 1);
}

TEST(Validate, NamesTheFirstNonFiniteOutput) {
  LogCapture log;
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const RunResults results = {
      {"A", {result("A", {{"good", floats({1})}, {"mask", floats({1, inf, -inf})}, {"scores", floats({nan})}})}}};
  const ValidationResult found = validate(results);
  EXPECT_FALSE(found.passed);
  EXPECT_EQ(found.first_non_finite, "mask");
  EXPECT_TRUE(log.has("[E]     First non-finite output of A: 'mask' (iteration 0): 0 NaN and 2 Inf among 3 elements"));
  EXPECT_TRUE(log.has(
      "[I]     A                                   | Validating output: good (check_inf=True, check_nan=True)"));
  EXPECT_TRUE(log.has("[E]         Inf Detected | One or more non-finite values were encountered in this output"));
  EXPECT_TRUE(log.has("[E]         NaN Detected | "));
  EXPECT_TRUE(log.has("[E]     FAILED | Output Validation"));
  EXPECT_TRUE(validate(results, {.check_inf = false, .check_nan = false}).passed);
}

}  // namespace
}  // namespace ulpscope
