// What a search makes of samples that differ: those that are held out, and how far the others are spread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/build_helpers.h"
#include "precision/search_helpers.h"

namespace ulpscope::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Search, AHeldOutSampleThatFailsJoinsIt) {
  // 300 squared is beyond fp16: one of the held-out samples overflows, and none of those that are searched on.
  const SearchData data = squares({1, 2, 1}, {1, 300, 2, 1});
  Journal journal;
  for (int turn = 0; turn < 2; ++turn) {  // The second from the journal.
    const Answer answer =
        search_precisions(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search(), journal);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
    EXPECT_EQ(answer.joined_samples, 1);
    EXPECT_EQ(answer.search_samples, 4);
    EXPECT_EQ(answer.validation_samples, 1);
    EXPECT_EQ(answer.held_out_samples, 2);  // The untouched half.
    EXPECT_EQ(answer.held_out_passed, 2);
    EXPECT_THAT(kept(answer), ElementsAre("Square", "Root"));  // which reads what fp16 cannot hold
  }
}

/// As above, but the sample is among those that are looked at in the end.
TEST(Search, AnUntouchedSampleThatFailsJoinsItWithItsHalf) {
  const SearchData data = squares({1, 2, 1}, {1, 2, 1, 1, 1, 300, 2, 1});
  Journal journal;
  for (int turn = 0; turn < 2; ++turn) {
    const Answer answer =
        search_precisions(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search(), journal);
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
    EXPECT_EQ(answer.joined_samples, 1);
    EXPECT_EQ(answer.search_samples, 4);
    EXPECT_EQ(answer.validation_samples, 5);
    EXPECT_EQ(answer.held_out_samples, 2);
    EXPECT_EQ(answer.held_out_passed, 2);
    EXPECT_THAT(kept(answer), ElementsAre("Square", "Root"));
  }
}

/// Nothing untouched would be left if it joined.
TEST(Search, TheLastUntouchedSamplesOnlyJudge) {
  for (const SearchData& data : {squares({1, 2, 1}, {1, 300}), squares({1, 2, 1}, {2, 1, 1, 1, 1, 1, 1, 300})}) {
    const Answer answer = run(data, *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search());
    EXPECT_EQ(answer.verdict, Answer::Verdict::kFailsHeldOut);
    EXPECT_THAT(answer.message, HasSubstr("1 of"));
    EXPECT_THAT(answer.message, HasSubstr("untouched"));
    EXPECT_EQ(answer.held_out_passed + 1, answer.held_out_samples);
    EXPECT_EQ(answer.validation_samples, 0);
    EXPECT_EQ(answer.held_out->worst_sample + 1, answer.held_out_samples);
  }
}

TEST(Search, OneHeldOutSampleStaysOne) {
  const Answer answer =
      run(squares({1, 2, 1}, {300}), *make_metric_criterion(MetricKind::kRelativeL2, 1e-2), fp16_search());
  EXPECT_EQ(answer.verdict, Answer::Verdict::kFound) << answer.message;
  EXPECT_EQ(answer.joined_samples, 0);
  EXPECT_EQ(answer.held_out_samples, 1);
}

TEST(Search, TakesItsMarginFromTheData) {
  Model model;
  model.input("x", {64});
  model.node("Add", {"x", "c"}, {"sum"}, "Add");
  model.node("Sub", {"sum", "c"}, {"y"}, "Sub");
  *model.graph().add_initializer() = float_tensor("c", {1}, {100});
  model.output("y");
  SearchData data;
  data.network = model.load();
  const auto margin = [&](std::vector<double> sizes) {
    data.samples.clear();
    for (std::size_t i = 0; i < sizes.size(); ++i)
      data.samples.push_back({{"x", values_in({64}, -sizes[i], sizes[i], static_cast<std::uint32_t>(i + 1))}});
    return run(data, *make_metric_criterion(MetricKind::kRelativeL2, 0.2), fp16_search()).margin;
  };
  EXPECT_EQ(margin({1, 1, 1, 1}), 0.5);
  EXPECT_EQ(margin({1}), 0.5);
  // The error is the same, its share is not: a factor of 2 each way is a deviation of ln 2.
  const double spread = margin({0.5, 2});
  EXPECT_GT(spread, std::exp(-2.5 * std::log(2.0)) * 0.5);
  EXPECT_LT(spread, std::exp(-2.5 * std::log(2.0)) * 2);
  EXPECT_EQ(margin({0.3, 30}), 0.03);
}

}  // namespace
}  // namespace ulpscope::testing
