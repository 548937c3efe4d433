#include <gmock/gmock.h>

#include "args/criterion.h"
#include "args/parser.h"
#include "precision/criterion_options.h"
#include "ulpscope/error.h"

namespace ulpscope::cli {
namespace {

using ::testing::HasSubstr;

/// The criterion for a command line, with outputs "logits" and "mask".
std::unique_ptr<Criterion> made_from(const std::vector<std::string>& words) {
  CriterionArgs criterion;
  ComparisonArgs comparison;
  OptionTable table("ulpscope test", "");
  criterion.declare(table);
  comparison.declare(table);
  EXPECT_TRUE(parse(table, words).unrecognized.empty());
  static ScriptHost host{ScriptHost::Callbacks{}};
  const std::vector<std::string> outputs = {"logits", "mask"};
  return make_criterion(criterion_options(criterion, comparison), host, outputs);
}

std::string usage_error(const std::vector<std::string>& words) {
  try {
    made_from(words);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no UsageError for " << ::testing::PrintToString(words);
  return "";
}

std::string error(const std::vector<std::string>& words) {
  try {
    made_from(words);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error for " << ::testing::PrintToString(words);
  return "";
}

TEST(CriterionArgs, TolerancesAreTheDefault) {
  EXPECT_EQ(made_from({})->description(), "elemwise error within atol 1e-05 or rtol 1e-05");
  const auto criterion = made_from({"--atol", "1e-2", "mask:1", "--check-error-stat", "median"});
  EXPECT_EQ(criterion->description(), "median error within atol 0.01 mask:1 or rtol 1e-05");
  EXPECT_EQ(criterion->sensitivity(), Sensitivity::kElementwise);
  EXPECT_EQ(criterion->atol("mask"), 1);
  EXPECT_EQ(criterion->atol("logits"), 0.01);
}

TEST(CriterionArgs, MetricsTakeThresholdsPerOutput) {
  const auto criterion = made_from({"--metric", "rel-l2", "--threshold", "logits:0.01"});
  EXPECT_EQ(criterion->description(), "rel-l2 <= logits:0.01");
  EXPECT_TRUE(criterion->judges("logits"));
  EXPECT_FALSE(criterion->judges("mask"));
  EXPECT_EQ(made_from({"--metric", "top-k", "--top-k", "5", "--threshold", "0.99"})->description(), "top-5 >= 0.99");
  EXPECT_EQ(made_from({"--metric", "iou", "--iou-level", "0.3", "--threshold", "0.9"})->description(),
            "iou (above 0.3) >= 0.9");
  EXPECT_EQ(made_from({"--metric-script", "a.py:score", "--threshold", "2"})->description(), "a.py:score meets 2");
  EXPECT_EQ(made_from({"--threshold", "0.02"})->description(),
            made_from({"--metric", "rel-l2", "--threshold", "0.02"})->description());
  EXPECT_EQ(made_from({"--metric", "snr", "--threshold", "40"})->threshold("mask"), 0.01);
}

TEST(CriterionArgs, OptionsThatContradictEachOtherAreUsageErrors) {
  EXPECT_THAT(usage_error({"--metric", "snr", "--metric-script", "a.py", "--threshold", "1"}),
              HasSubstr("not allowed with argument"));
  EXPECT_THAT(usage_error({"--threshold", "1", "--rtol", "1"}),
              HasSubstr("argument --rtol/--rel-tol: not allowed with argument --threshold, which is of a metric"));
  EXPECT_THAT(usage_error({"--metric", "kl"}), HasSubstr("argument --metric: needs --threshold X"));
  EXPECT_THAT(usage_error({"--metric-script", "a.py"}), HasSubstr("argument --metric-script: needs --threshold X"));
  EXPECT_THAT(usage_error({"--top-k", "5"}), HasSubstr("needs --metric top-k"));
  EXPECT_THAT(usage_error({"--metric", "kl", "--threshold", "1", "--iou-level", "0.1"}),
              HasSubstr("needs --metric iou"));
  EXPECT_THAT(usage_error({"--metric", "kl", "--threshold", "1", "--atol", "0.1"}),
              HasSubstr("argument --atol/--abs-tol: not allowed with argument --metric"));
  EXPECT_THAT(usage_error({"--metric-script", "a.py", "--threshold", "1", "--check-error-stat", "mean"}),
              HasSubstr("argument --check-error-stat: not allowed with argument --metric-script"));
  EXPECT_THAT(usage_error({"--compare", "l2"}), HasSubstr("try --metric (rel-l2, "));
  EXPECT_THAT(usage_error({"--compare-func-script", "a.py"}), HasSubstr("try --metric-script"));
  EXPECT_THAT(usage_error({"--metric", "mse"}), HasSubstr("invalid choice: 'mse'"));
}

TEST(CriterionArgs, ValuesThatDoNotFitAreErrors) {
  EXPECT_THAT(error({"--metric", "rel-l2", "--threshold", "logit:0.01"}),
              HasSubstr("--threshold: expected an output of the network, got 'logit'; did you mean 'logits'?"));
  EXPECT_THAT(error({"--atol", "masks:1"}), HasSubstr("--atol: expected an output"));
  EXPECT_THAT(error({"--metric", "rel-l2", "--threshold", "much"}), HasSubstr("--threshold"));
  EXPECT_THAT(error({"--metric", "iou", "--threshold", "90"}), HasSubstr("a share above 0, at most 1"));
  EXPECT_THAT(error({"--metric", "top-k", "--top-k", "0", "--threshold", "0.9"}), HasSubstr("k of 1 or more"));
  EXPECT_THAT(error({"--atol", "-1"}), HasSubstr("expected 0 or more"));
  EXPECT_THAT(error({"--check-error-stat", "worst"}), HasSubstr("Invalid choice for check_error_stat"));
}

}  // namespace
}  // namespace ulpscope::cli
