// The strategies, on models of which sets of layers are right.
#include "precision/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace ulpscope {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::Pair;

/// Right if all of `needed` are there.
TryLayers needs(std::set<int> needed) {
  return [needed = std::move(needed)](const Attempt& attempt) {
    return std::ranges::includes(std::set<int>(attempt.layers.begin(), attempt.layers.end()), needed);
  };
}

/// Right for these counts, whatever the layers are.
TryLayers counts(std::set<int> good) {
  return [good = std::move(good)](const Attempt& attempt) { return good.contains(attempt.count); };
}

std::vector<int> range(int first, int last) {
  std::vector<int> result;
  for (int i = first; i < last; ++i) result.push_back(i);
  return result;
}

std::vector<int> tried(const StrategyResult& result) {
  std::vector<int> counts;
  for (const auto& entry : result.tried) counts.push_back(entry.first);
  return counts;
}

TEST(BisectLayers, FindsTheSmallestSetFromBothEndsWhereverItIs) {
  for (int n = 0; n <= 33; ++n) {
    for (int last = 0; last < n; ++last) {
      const auto forward = bisect_layers(n, Direction::kForward, BisectStart::kNone, needs({last}));
      EXPECT_THAT(forward.layers, Optional(range(0, last + 1))) << n << " layers, " << last;
      EXPECT_LE(forward.tried.size(), 2 + std::log2(n + 1));
      EXPECT_TRUE(forward.monotone());
      const auto reverse = bisect_layers(n, Direction::kReverse, BisectStart::kNone, needs({last}));
      EXPECT_THAT(reverse.layers, Optional(range(last, n))) << n << " layers, " << last;
      const auto from_all = bisect_layers(n, Direction::kForward, BisectStart::kAll, needs({last}));
      EXPECT_THAT(from_all.layers, Optional(range(0, last + 1))) << n << " layers, " << last;
      EXPECT_LE(from_all.tried.size(), 2 + std::log2(n + 1));
    }
  }
}

TEST(BisectLayers, TriesTheCountsThatPolygraphyTries) {
  // needs_constraints: six layers, the third of which (fp16_max, Add at 3) matters.
  EXPECT_THAT(tried(bisect_layers(6, Direction::kForward, BisectStart::kNone, needs({3}))), ElementsAre(0, 4, 2, 3));
  EXPECT_THAT(tried(bisect_layers(6, Direction::kForward, BisectStart::kNone, needs({4}))), ElementsAre(0, 4, 6, 5));
  EXPECT_THAT(tried(bisect_layers(6, Direction::kForward, BisectStart::kAll, needs({3}))), ElementsAre(6, 3, 5, 4));
  EXPECT_THAT(tried(bisect_layers(6, Direction::kForward, BisectStart::kAll, needs({}))), ElementsAre(6, 3, 1));
}

TEST(BisectLayers, SaysThatNothingHelps) {
  for (int n = 0; n <= 9; ++n) {
    const auto none = bisect_layers(n, Direction::kForward, BisectStart::kNone, counts({}));
    EXPECT_EQ(none.layers, std::nullopt);
    EXPECT_EQ(none.tried.front().first, 0);
    EXPECT_EQ(none.tried.back().first, n) << "all layers must have been tried";
    EXPECT_THAT(bisect_layers(n, Direction::kForward, BisectStart::kAll, counts({})).tried,
                ElementsAre(Pair(n, false)));
  }
}

TEST(BisectLayers, NeedsNothingWhenNothingIsWrong) {
  const auto result = bisect_layers(6, Direction::kReverse, BisectStart::kNone, needs({}));
  EXPECT_THAT(result.layers, Optional(IsEmpty()));
  EXPECT_THAT(tried(result), ElementsAre(0));
}

TEST(BisectLayers, ReturnsTheLastGoodTryNotTheLast) {
  // The last try (2) is wrong.
  const auto result = bisect_layers(6, Direction::kForward, BisectStart::kNone, counts({3, 4, 5, 6}));
  EXPECT_THAT(tried(result), ElementsAre(0, 4, 2, 3));
  EXPECT_THAT(result.layers, Optional(range(0, 3)));
  const auto other = bisect_layers(8, Direction::kForward, BisectStart::kNone, counts({5, 6, 7, 8}));
  EXPECT_FALSE(other.tried.back().second && other.tried.back().first != 5);
  EXPECT_THAT(other.layers, Optional(range(0, 5)));
}

TEST(BisectLayers, AnswersWithARightSetEvenIfPassingIsNotMonotone) {
  // All 64 patterns of six counts (and none, which is wrong): what is returned was right when it was tried.
  for (unsigned pattern = 0; pattern < 64; ++pattern) {
    std::set<int> good;
    for (int count = 1; count <= 6; ++count)
      if (pattern >> (count - 1) & 1u) good.insert(count);
    for (const BisectStart start : {BisectStart::kNone, BisectStart::kAll}) {
      const auto result = bisect_layers(6, Direction::kForward, start, counts(good));
      if (result.layers) EXPECT_TRUE(good.contains(static_cast<int>(result.layers->size()))) << pattern;
    }
    const auto linear = add_layers(6, Direction::kForward, counts(good));
    EXPECT_EQ(linear.layers.has_value(), !good.empty());
    if (linear.layers) EXPECT_EQ(static_cast<int>(linear.layers->size()), *good.begin());
  }
}

TEST(BisectLayers, ProbesTellThatPassingIsNotMonotone) {
  const auto blind = bisect_layers(16, Direction::kForward, BisectStart::kNone, counts({7, 8, 9}));
  EXPECT_THAT(blind.layers, Optional(range(0, 7)));
  EXPECT_TRUE(blind.monotone());
  const auto seen = bisect_layers(16, Direction::kForward, BisectStart::kNone, counts({7, 8, 9}), 2);
  EXPECT_THAT(seen.layers, Optional(range(0, 7)));
  EXPECT_FALSE(seen.monotone());
  const auto sound = bisect_layers(16, Direction::kForward, BisectStart::kNone, needs({6}), 2);
  EXPECT_TRUE(sound.monotone());
  EXPECT_LE(sound.tried.size(), 8u);
}

TEST(BisectLayers, TellsEachTryWhatIsKnown) {
  std::vector<std::pair<std::optional<int>, std::optional<int>>> known;
  bisect_layers(6, Direction::kForward, BisectStart::kNone, [&](const Attempt& attempt) {
    known.emplace_back(attempt.good, attempt.bad);
    return attempt.count >= 3;
  });
  EXPECT_THAT(known, ElementsAre(Pair(std::nullopt, std::nullopt), Pair(std::nullopt, Optional(0)),
                                 Pair(Optional(4), Optional(0)), Pair(Optional(4), Optional(2))));
}

TEST(AddLayers, StopsAtTheFirstRightCount) {
  const auto result = add_layers(5, Direction::kReverse, needs({3}));
  EXPECT_THAT(tried(result), ElementsAre(0, 1, 2));
  EXPECT_THAT(result.layers, Optional(ElementsAre(3, 4)));
  const auto none = add_layers(3, Direction::kForward, counts({}));
  EXPECT_THAT(tried(none), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(none.layers, std::nullopt);
  // Larger sets that are wrong do not matter, but are told when somebody looks.
  const auto gap = add_layers(6, Direction::kForward, counts({1, 6}), 2);
  EXPECT_THAT(gap.layers, Optional(ElementsAre(0)));
  EXPECT_FALSE(gap.monotone());
}

TEST(AddWorstLayers, AddsSoManyPerRound) {
  const std::vector<int> ranking{9, 2, 7, 4, 1};
  const auto result = add_worst_layers(ranking, 2, needs({7}));
  EXPECT_THAT(tried(result), ElementsAre(0, 2, 4));
  EXPECT_THAT(result.layers, Optional(ElementsAre(2, 4, 7, 9)));
  const auto none = add_worst_layers(ranking, 2, counts({}));
  EXPECT_THAT(tried(none), ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(tried(add_worst_layers({}, 5, counts({}))), ElementsAre(0));
  EXPECT_THAT(tried(add_worst_layers(ranking, 5, counts({}))), ElementsAre(0, 5));
}

TEST(RankByErrorGrowth, PutsTheLargestRatioFirst) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  EXPECT_THAT(rank_by_error_growth({1, 2, 20, 10}), ElementsAre(2, 1, 3, 0));
  EXPECT_THAT(rank_by_error_growth({1, 0, 1, 2}), ElementsAre(2, 3, 1, 0));
  EXPECT_THAT(rank_by_error_growth({1, 5, kInf, kInf, 3}), ElementsAre(2, 1, 3, 4, 0));
  EXPECT_THAT(rank_by_error_growth({std::nan(""), 5, 6}), ElementsAre(0, 2, 1));
  EXPECT_THAT(rank_by_error_growth({0, 0, 0}), ElementsAre(1, 2, 0));
  EXPECT_THAT(rank_by_error_growth({}), IsEmpty());
}

}  // namespace
}  // namespace ulpscope
