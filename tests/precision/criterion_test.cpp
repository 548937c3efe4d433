#include "precision/criterion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "compare/compare_functions.h"
#include "compare/difference.h"
#include "core/parallel.h"
#include "precision/criterion_options.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor vec(std::initializer_list<float> values) {
  return Tensor::of<float>({static_cast<std::int64_t>(values.size())}, values);
}

std::vector<TensorMap> one(const Tensor& tensor) { return {{{"y", tensor}}}; }

std::string message_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

double used_of(MetricKind kind, double threshold, const Tensor& golden, const Tensor& candidate,
               const MetricParameters& parameters = {}, bool infinities_equal = false) {
  return make_metric_criterion(kind, threshold, parameters, infinities_equal)->judge(one(golden), one(candidate)).used;
}

Tensor random_tensor(std::mt19937& random, const Shape& shape, double scale = 1) {
  std::normal_distribution<float> normal;
  Tensor result(DataType::kFloat32, shape);
  for (std::int64_t i = 0; i < result.size(); ++i) result.data<float>()[i] = static_cast<float>(normal(random) * scale);
  return result;
}

TEST(MetricsTest, ValuesByHand) {
  const Tensor g = vec({3, 4}), c = vec({3, 5});
  EXPECT_DOUBLE_EQ(compute_metric(MetricKind::kRelativeL2, g, c), 0.2);
  EXPECT_DOUBLE_EQ(compute_metric(MetricKind::kRelativeMax, g, c), 0.25);
  EXPECT_NEAR(compute_metric(MetricKind::kOneMinusCos, g, c), 1 - 29 / (5 * std::sqrt(34)), 1e-15);
  EXPECT_NEAR(compute_metric(MetricKind::kPsnr, g, c), 10 * std::log10(16 / 0.5), 1e-12);
  EXPECT_NEAR(compute_metric(MetricKind::kSnr, g, c), 10 * std::log10(25.0), 1e-12);
  EXPECT_NEAR(compute_metric(MetricKind::kKl, vec({0.5, 0.5}), vec({0.25, 0.75})),
              0.5 * std::log(2) + 0.5 * std::log(2.0 / 3), 1e-12);
  EXPECT_DOUBLE_EQ(compute_metric(MetricKind::kTopK, vec({1, 3, 2}), vec({1, 2, 3})), 0);
  EXPECT_DOUBLE_EQ(compute_metric(MetricKind::kTopK, vec({1, 3, 2}), vec({1, 2, 3}), {.k = 2}), 1);
  EXPECT_DOUBLE_EQ(compute_metric(MetricKind::kIou, vec({1, 1, 0, 0}), vec({1, 0, 1, 0})), 1.0 / 3);
}

TEST(MetricsTest, ZerosAndEmptyTensors) {
  const Tensor zero = vec({0, 0}), other = vec({0, 1}), empty = Tensor::of<float>({0, 3}, {});
  for (MetricKind kind : {MetricKind::kRelativeL2, MetricKind::kRelativeMax}) {
    EXPECT_EQ(compute_metric(kind, zero, zero), 0);
    EXPECT_EQ(compute_metric(kind, zero, other), HUGE_VAL);
  }
  EXPECT_EQ(compute_metric(MetricKind::kOneMinusCos, zero, zero), 0);
  EXPECT_EQ(compute_metric(MetricKind::kOneMinusCos, zero, other), 1);
  EXPECT_EQ(compute_metric(MetricKind::kOneMinusCos, other, zero), 1);
  EXPECT_NEAR(compute_metric(MetricKind::kOneMinusCos, vec({0, 2}), vec({0, -1})), 2, 1e-15);
  for (MetricKind kind : {MetricKind::kPsnr, MetricKind::kSnr}) {
    EXPECT_EQ(compute_metric(kind, other, other), HUGE_VAL);
    EXPECT_EQ(compute_metric(kind, zero, other), -HUGE_VAL);
  }
  EXPECT_EQ(compute_metric(MetricKind::kIou, zero, zero), 1);
  for (const std::string& name : metric_names()) {
    const MetricKind kind = *metric_from_name(name);
    EXPECT_EQ(name_of(kind), name);
    EXPECT_EQ(used_of(kind, 0.5, empty, empty), 0) << name;
  }
}

TEST(MetricsTest, OneMinusCosKeepsSmallAngles) {
  const Tensor g = Tensor::of<double>({2}, {1, 0}), c = Tensor::of<double>({2}, {1, 1e-10});
  EXPECT_NEAR(compute_metric(MetricKind::kOneMinusCos, g, c) / 5e-21, 1, 1e-9);
}

TEST(MetricsTest, HugeAndTinyDoublesNeitherOverflowNorVanish) {
  for (double scale : {1e300, 1e-300}) {
    const Tensor g = Tensor::of<double>({2}, {3 * scale, 4 * scale}),
                 c = Tensor::of<double>({2}, {3 * scale, 5 * scale});
    EXPECT_NEAR(compute_metric(MetricKind::kRelativeL2, g, c), 0.2, 1e-12);
    EXPECT_NEAR(compute_metric(MetricKind::kSnr, g, c), 10 * std::log10(25.0), 1e-9);
    EXPECT_NEAR(compute_metric(MetricKind::kOneMinusCos, g, c), 1 - 29 / (5 * std::sqrt(34)), 1e-14);
  }
}

TEST(MetricsTest, NarrowAndIntegerTypesAreReadExactly) {
  const Tensor g = vec({1, 2, 3, 4}), c = vec({1, 2, 3, 5});
  for (DataType type : {DataType::kFloat16, DataType::kBFloat16, DataType::kFloat64, DataType::kInt32, DataType::kInt8})
    for (MetricKind kind :
         {MetricKind::kRelativeL2, MetricKind::kRelativeMax, MetricKind::kOneMinusCos, MetricKind::kSnr})
      EXPECT_DOUBLE_EQ(compute_metric(kind, g.cast(type), c.cast(type)), compute_metric(kind, g, c));
}

TEST(MetricsTest, SameBitsForEveryNumberOfThreads) {
  std::mt19937 random(3);
  const Tensor g = random_tensor(random, {70, 1000}), c = random_tensor(random, {70, 1000});
  for (const std::string& name : metric_names()) {
    const MetricKind kind = *metric_from_name(name);
    set_num_threads(1);
    const double alone = compute_metric(kind, g, c, {.k = 5});
    for (int threads : {2, 3, 4}) {
      set_num_threads(threads);
      EXPECT_EQ(compute_metric(kind, g, c, {.k = 5}), alone) << name;
    }
  }
  set_num_threads(0);
}

TEST(MetricsTest, KlTakesLogitsOrProbabilities) {
  const Tensor logits = Tensor::of<float>({2, 3}, {1, 2, 3, 0, 0, 0}),
               moved = Tensor::of<float>({2, 3}, {2, 3, 4, 5, 5, 5});
  EXPECT_NEAR(compute_metric(MetricKind::kKl, logits, moved), 0, 1e-12) << "softmax does not see shifts";
  const Tensor p = Tensor::of<float>({1, 2}, {0.25F, 0.75F}), underflow = Tensor::of<float>({1, 2}, {0, 1});
  const double floored = compute_metric(MetricKind::kKl, p, underflow);
  EXPECT_NEAR(floored, 0.25 * std::log(0.25 / 1e-12) + 0.75 * std::log(0.75), 1e-9);
  for (double step : {1e-8, 1e-3, 0.03}) {
    const Tensor even = Tensor::of<double>({2}, {0, 0}), uneven = Tensor::of<double>({2}, {0, step});
    const double exact = std::log1p(2 * std::sinh(step / 4) * std::sinh(step / 4));
    EXPECT_NEAR(compute_metric(MetricKind::kKl, even, uneven) / exact, 1, 1e-6)
        << "small divergences keep their digits";
  }
  // A mask of -inf is a probability of 0 on both sides.
  EXPECT_NEAR(compute_metric(MetricKind::kKl, vec({-kInf, 1, 2}), vec({-kInf, 1, 2})), 0, 1e-12);
  EXPECT_THAT(message_of([] { compute_metric(MetricKind::kKl, vec({1}), vec({2})); }),
              HasSubstr("at least 2 elements"));
}

TEST(MetricsTest, TopKBreaksTiesByIndexAndRefusesRowsThatSayNothing) {
  EXPECT_EQ(compute_metric(MetricKind::kTopK, vec({5, 5, 1}), vec({5, 5, 1})), 1);
  EXPECT_EQ(compute_metric(MetricKind::kTopK, vec({5, 5, 1}), vec({4, 5, 1})), 0);
  EXPECT_EQ(compute_metric(MetricKind::kTopK, vec({5, 5, 5, 1}), vec({4, 5, 5, 1}), {.k = 2}), 0.5);
  EXPECT_THAT(message_of([] {
                compute_metric(MetricKind::kTopK, vec({1, 2}), vec({1, 2}), {.k = 2});
              }),
              HasSubstr("more than k = 2 elements"));
}

TEST(ThresholdTest, SharesAreAtMostOneExactlyWhereTheThresholdIsMet) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform(0.001, 0.999);
  for (const std::string& name : metric_names()) {
    const MetricKind kind = *metric_from_name(name);
    for (int i = 0; i < 2000; ++i) {
      const double threshold = uniform(random);
      for (double value : {uniform(random), threshold, std::nextafter(threshold, 0), std::nextafter(threshold, 1)}) {
        const bool meets = higher_is_better(kind) ? value >= threshold : value <= threshold;
        EXPECT_EQ(share_of_threshold(kind, value, threshold) <= 1, meets) << name << ' ' << value << ' ' << threshold;
      }
    }
  }
  EXPECT_NEAR(share_of_threshold(MetricKind::kSnr, 20, 40), 10, 1e-12);
  EXPECT_EQ(share_of_threshold(MetricKind::kSnr, HUGE_VAL, 40), 0);
  EXPECT_EQ(share_of_threshold(MetricKind::kSnr, -HUGE_VAL, 40), HUGE_VAL);
  EXPECT_NEAR(share_of_threshold(MetricKind::kTopK, 0.8, 0.9), 2, 1e-12);
  EXPECT_EQ(share_of_threshold(MetricKind::kTopK, 1, 1), 0);
  EXPECT_EQ(share_of_threshold(MetricKind::kTopK, 0.999, 1), HUGE_VAL);
  EXPECT_EQ(share_of_threshold(MetricKind::kRelativeL2, 0, 0), 0);
  EXPECT_EQ(share_of_threshold(MetricKind::kRelativeL2, 1e-9, 0), HUGE_VAL);
  EXPECT_EQ(share_of_threshold(MetricKind::kRelativeL2, std::nan(""), 0.1), HUGE_VAL);
}

TEST(CriterionTest, TheWorstOutputAndSampleDecide) {
  const std::vector<TensorMap> golden = {{{"a", vec({1})}, {"b", vec({1})}}, {{"a", vec({1})}, {"b", vec({1})}}};
  const std::vector<TensorMap> candidate = {{{"b", vec({1.25})}, {"a", vec({1.5})}},
                                            {{"a", vec({1.25})}, {"b", vec({3})}}};
  const Judgement all = make_metric_criterion(MetricKind::kRelativeL2, 0.5)->judge(golden, candidate);
  EXPECT_EQ(all.used, 4);
  EXPECT_EQ(all.value, 2);
  EXPECT_EQ(all.worst_output, "b");
  EXPECT_EQ(all.worst_sample, 1);
  EXPECT_FALSE(all.passed());
  EXPECT_TRUE(all.passed(4));
  ASSERT_EQ(all.outputs.size(), 2u);
  EXPECT_EQ(all.outputs[0].output, "a");
  EXPECT_EQ(all.outputs[0].used, 1);
  EXPECT_EQ(all.outputs[0].sample, 0);

  PerName<double> named;
  named.set("a", 0.5);
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, named);
  EXPECT_FALSE(criterion->judges("b"));
  const Judgement some = criterion->judge(golden, candidate);
  EXPECT_EQ(some.used, 1);
  EXPECT_EQ(some.worst_output, "a");
  EXPECT_EQ(criterion->description(), "rel-l2 <= a:0.5");
  named.set("", 4);
  const Judgement both = make_metric_criterion(MetricKind::kRelativeL2, named)->judge(golden, candidate);
  EXPECT_EQ(both.used, 1);
}

TEST(CriterionTest, OutputsThatDoNotFitAreErrors) {
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 0.5);
  const auto judge = [&](const std::vector<TensorMap>& golden, const std::vector<TensorMap>& candidate) {
    return message_of([&] { criterion->judge(golden, candidate); });
  };
  EXPECT_THAT(judge(one(vec({1})), {{{"z", vec({1})}}}), HasSubstr("sample 0: expected an output 'y', got 'z'"));
  // Another shape is no error: lengths that depend on values may come out otherwise in low precision.
  const Judgement other = criterion->judge(one(vec({1})), one(vec({1, 2})));
  EXPECT_FALSE(other.passed());
  EXPECT_EQ(other.problem, "output 'y', sample 0: shape (2,) where the golden output has (1,)");
  EXPECT_THAT(judge(one(vec({1})), {}), HasSubstr("samples"));
  PerName<double> named;
  named.set("other", 1);
  EXPECT_THAT(message_of([&] { make_metric_criterion(MetricKind::kSnr, named)->judge(one(vec({1})), one(vec({1}))); }),
              HasSubstr("expected an output with a threshold, got 'y'"));
}

TEST(CriterionTest, NonFiniteCandidatesFailEveryCriterionWithAReason) {
  const Tensor golden = Tensor::of<float>({2, 2}, {0.5F, 0.5F, 0.25F, 0.75F});
  for (float bad : {kNaN, kInf, -kInf}) {
    const Tensor candidate = Tensor::of<float>({2, 2}, {0.5F, bad, 0.25F, 0.75F});
    const auto check = [&](const Criterion& criterion) {
      const Judgement judgement = criterion.judge(one(golden), one(candidate));
      EXPECT_EQ(judgement.used, HUGE_VAL) << criterion.description();
      EXPECT_EQ(judgement.worst_output, "y");
      EXPECT_EQ(judgement.problem,
                std::isnan(bad) ? "output 'y', sample 0: 1 NaN and 0 Inf where the golden output has other values"
                                : "output 'y', sample 0: 0 NaN and 1 Inf where the golden output has other values");
    };
    for (const std::string& name : metric_names()) check(*make_metric_criterion(*metric_from_name(name), 0.5));
    for (const char* stat : {"elemwise", "max", "mean", "median", "quantile"}) {
      CompareOptions options;
      options.error_stat = std::string(stat);
      options.error_quantile = 0.1;
      options.atol = 1000.0;
      check(*make_tolerance_criterion(options));
    }
  }
}

TEST(CriterionTest, GoldenInfinitiesAreMetByTheSameInfinity) {
  const Tensor golden = vec({1, kInf, -kInf, 2}), same = vec({1, kInf, -kInf, 3}), other = vec({1, kInf, kInf, 2});
  for (MetricKind kind : {MetricKind::kRelativeL2, MetricKind::kRelativeMax, MetricKind::kOneMinusCos,
                          MetricKind::kPsnr, MetricKind::kSnr}) {
    EXPECT_EQ(used_of(kind, 0.5, golden, same, {}, true), used_of(kind, 0.5, vec({1, 2}), vec({1, 3})));
    EXPECT_EQ(used_of(kind, 0.5, golden, other, {}, true), HUGE_VAL);
    EXPECT_EQ(used_of(kind, 0.5, golden, same, {}, false), HUGE_VAL);
    EXPECT_EQ(used_of(kind, 0.5, golden, vec({1, 5, -kInf, 2}), {}, true), HUGE_VAL);
  }
}

TEST(CriterionTest, ThresholdsThatMakeNoSenseAreErrors) {
  const auto message = [](MetricKind kind, double threshold) {
    return message_of([&] { make_metric_criterion(kind, threshold); });
  };
  EXPECT_THAT(message(MetricKind::kRelativeL2, -1),
              HasSubstr("threshold of rel-l2: expected a finite number, 0 or more"));
  EXPECT_THAT(message(MetricKind::kRelativeMax, kInf), HasSubstr("rel-max"));
  EXPECT_THAT(message(MetricKind::kOneMinusCos, 3), HasSubstr("0 to 2"));
  EXPECT_THAT(message(MetricKind::kTopK, 95), HasSubstr("a share above 0, at most 1"));
  EXPECT_THAT(message(MetricKind::kIou, 0), HasSubstr("a share"));
  EXPECT_THAT(message(MetricKind::kSnr, kNaN), HasSubstr("decibels"));
  EXPECT_THAT(message_of([] { make_metric_criterion(MetricKind::kKl, PerName<double>()); }), HasSubstr("got none"));
  CompareOptions options;
  options.atol = -1.0;
  EXPECT_THAT(message_of([&] { make_tolerance_criterion(options); }), HasSubstr("--atol: expected 0 or more, got -1"));
}

TEST(CriterionTest, WithoutAToleranceTheLowestPrecisionChoosesOne) {
  const auto words = [](const char* precision, const CriterionOptions& given) {
    BuildOptions build;
    for (const LayerForm& form : layer_forms())
      build.enabled.set(form.precision, std::string_view(precision).find(form.name) != std::string_view::npos);
    return fmt::format("{}", fmt::join(criterion_words(with_usual_tolerance(given, build)), " "));
  };
  EXPECT_EQ(words("tf32", {}), "--metric rel-l2 --threshold 0.005");
  EXPECT_EQ(words("fp16", {}), "--metric rel-l2 --threshold 0.005");
  EXPECT_EQ(words("bf16 fp16", {}), "--metric rel-l2 --threshold 0.03");
  EXPECT_EQ(words("fp16 int8", {}), "--metric rel-l2 --threshold 0.05");
  EXPECT_EQ(words("fp8", {}), "--metric rel-l2 --threshold 0.05");
  CriterionOptions given;
  given.infinities_equal = true;
  EXPECT_EQ(words("fp16", given), "--metric rel-l2 --threshold 0.005 --infinities-compare-equal");
  given.atol.set("y", 1e-3);
  EXPECT_EQ(words("fp16", given), "--atol y:0.001 --infinities-compare-equal");
  EXPECT_EQ(words("fp16", {.metric = "kl", .threshold = 1e-4}), "--metric kl --threshold 0.0001");
  EXPECT_EQ(words("fp16", {.threshold = 1e-4}), "--metric rel-l2 --threshold 0.0001");
  given = {};
  given.error_stat = std::string("mean");
  EXPECT_THAT(message_of([&] { words("fp16", given); }), HasSubstr("--check-error-stat: expected --atol or --rtol"));
}

/// The verdict of `--compare simple`.
bool simple_passes(const Tensor& golden, const Tensor& candidate, const CompareOptions& options) {
  IterationResult first, second;
  first.outputs = {{"y", candidate}};
  second.outputs = {{"y", golden}};
  return simple_compare(options)(first, second).at(0).passed;
}

TEST(ToleranceTest, PassesExactlyWherePolygraphyDoes) {
  std::mt19937 random(11);
  std::uniform_int_distribution<int> pick(0, 9);
  const float special[] = {0, -0.0F, kInf, -kInf, kNaN, 1e-30F, 65504};
  const double limits[] = {0, 1e-5, 1e-3, 0.1, 1, HUGE_VAL};
  int passed = 0, rounds = 0;
  for (DataType type :
       {DataType::kFloat32, DataType::kFloat16, DataType::kFloat64, DataType::kInt32, DataType::kBool}) {
    for (int round = 0; round < 600; ++round) {
      Tensor golden = random_tensor(random, {13}), candidate = golden.clone();
      for (std::int64_t i = 0; i < golden.size(); ++i) {
        if (pick(random) == 0 && is_floating(type)) golden.data<float>()[i] = special[pick(random) % 7];
        candidate.data<float>()[i] = golden.data<float>()[i];
        if (pick(random) < 3)
          candidate.data<float>()[i] += std::ldexp(1.0F, -pick(random) * 2) * golden.data<float>()[i] * 0.1F;
        if (round % 7 == 0 && pick(random) == 0 && is_floating(type))
          candidate.data<float>()[i] = special[pick(random) % 7];
      }
      if (!is_floating(type)) {  // whole numbers of some size
        for (std::int64_t i = 0; i < golden.size(); ++i)
          golden.data<float>()[i] *= 10, candidate.data<float>()[i] *= 10;
      }
      CompareOptions options;
      options.atol = limits[pick(random) % 6];
      options.rtol = limits[pick(random) % 6];
      options.infinities_compare_equal = pick(random) < 5;
      const Tensor g = golden.cast(type), c = candidate.cast(type);
      const Judgement judgement = make_tolerance_criterion(options)->judge(one(g), one(c));
      const bool simple = simple_passes(g, c, options);
      ASSERT_EQ(judgement.passed(), simple) << name_of(type) << " round " << round;
      passed += simple;
      ++rounds;
      const NonFinite foreign = count_non_finite(g, c);
      if (foreign.nan + foreign.inf > 0) continue;  // there ours is stricter
      for (const char* stat : {"max", "mean", "median", "quantile"}) {
        options.error_stat = std::string(stat);
        ASSERT_EQ(make_tolerance_criterion(options)->judge(one(g), one(c)).passed(), simple_passes(g, c, options))
            << stat;
      }
    }
  }
  EXPECT_GT(passed, rounds / 10) << "the test must see both verdicts";
  EXPECT_LT(passed, rounds * 9 / 10);
}

TEST(ToleranceTest, PassesAtTheLimitAndNotBeyondIt) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const Tensor golden = random_tensor(random, {50}), candidate = random_tensor(random, {50}, 2);
    CompareOptions options;
    options.rtol = 0.0;
    const Difference diff = difference(candidate, golden);
    float largest = 0;
    for (float value : diff.absolute.values<float>()) largest = std::max(largest, value);
    options.atol = static_cast<double>(largest);
    EXPECT_EQ(make_tolerance_criterion(options)->judge(one(golden), one(candidate)).used, 1);
    options.atol = static_cast<double>(std::nextafter(largest, 0.0F));
    EXPECT_GT(make_tolerance_criterion(options)->judge(one(golden), one(candidate)).used, 1);
  }
}

TEST(ToleranceTest, UsesTheCheaperOfBothTolerancesPerElement) {
  CompareOptions options;
  options.atol = 0.1;
  options.rtol = 0.01;
  const auto criterion = make_tolerance_criterion(options);
  const Judgement judgement = criterion->judge(one(vec({100, 1})), one(vec({100.5F, 1.05F})));
  EXPECT_NEAR(judgement.used, 0.5, 1e-6);
  EXPECT_NEAR(judgement.value, 0.5, 1e-6);
  EXPECT_EQ(criterion->description(), "elemwise error within atol 0.1 or rtol 0.01");
  options.error_stat = std::string("mean");
  EXPECT_NEAR(make_tolerance_criterion(options)->judge(one(vec({100, 1})), one(vec({100.5F, 1.05F}))).used, 2.75, 1e-5);
}

TEST(CheckGoldenTest, NamesWhatIsWrong) {
  const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 0.5);
  const std::vector<ExpectedOutput> expected = {{"y", {-1}}};
  const auto message = [&](const std::vector<TensorMap>& golden, bool infinities = false, std::int64_t samples = -1) {
    return message_of([&] { check_golden(golden, expected, *criterion, infinities, samples); });
  };
  check_golden(one(vec({1, 2})), expected, *criterion, false, 1);
  check_golden(one(vec({1, kInf})), expected, *criterion, true);
  EXPECT_THAT(message({}), HasSubstr("[golden] expected outputs of at least one sample, got none"));
  EXPECT_THAT(message(one(vec({1})), false, 3), HasSubstr("expected outputs of 3 samples, as there are inputs, got 1"));
  EXPECT_THAT(message({{{"z", vec({1})}}}), HasSubstr("sample 0: expected an output 'y', got 'z'"));
  EXPECT_THAT(message(one(Tensor::of<float>({1, 1}, {1}))), HasSubstr("output 'y', sample 0: expected shape"));
  EXPECT_THAT(message({one(vec({1}))[0], one(vec({kNaN, 1, kNaN}))[0]}, true),
              HasSubstr("output 'y', sample 1: expected numbers, got 2 NaN in 3 elements"));
  EXPECT_THAT(message(one(vec({1, -kInf}))), HasSubstr("got 1 Inf in 2 elements; try --infinities-compare-equal"));
  PerName<double> named;
  named.set("z", 1);
  check_golden({{{{"y", vec({kNaN})}, {"z", vec({1})}}}}, expected, *make_metric_criterion(MetricKind::kSnr, named),
               false);
}

TEST(CheckOutputNamesTest, SuggestsNearMatches) {
  const std::vector<std::string> outputs = {"logits", "mask"};
  PerName<double> values(1.0);
  values.set("mask", 2);
  check_output_names(values, outputs, "--threshold");
  values.set("logit", 2);
  EXPECT_THAT(
      message_of([&] { check_output_names(values, outputs, "--threshold"); }),
      HasSubstr("[options] --threshold: expected an output of the network, got 'logit'; did you mean 'logits'?"));
}

}  // namespace
}  // namespace ulpscope
