// The knapsack against all assignments of small cases, and what holds for large ones.
#include "precision/knapsack.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace ulpscope {
namespace {

using Groups = std::vector<std::vector<KnapsackOption>>;

Groups random_groups(std::mt19937& random, std::size_t count, std::int64_t most_bits) {
  Groups groups(count);
  std::uniform_int_distribution<std::int64_t> bits(1, most_bits);
  std::exponential_distribution<double> error(1);
  for (auto& options : groups) {
    options.resize(1 + random() % 4);
    for (KnapsackOption& each : options) each = {bits(random), std::pow(error(random), 3)};
  }
  return groups;
}

KnapsackOption sum_of(const Groups& groups, const std::vector<std::size_t>& chosen) {
  KnapsackOption sum;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    sum.bits += groups[g][chosen[g]].bits;
    sum.error += groups[g][chosen[g]].error;
  }
  return sum;
}

double least_error(const Groups& groups, std::int64_t bits) {
  double least = std::numeric_limits<double>::infinity();
  const std::function<void(std::size_t, KnapsackOption)> visit = [&](std::size_t g, KnapsackOption sum) {
    if (sum.bits > bits) return;
    if (g == groups.size()) {
      least = std::min(least, sum.error);
      return;
    }
    for (const KnapsackOption& each : groups[g]) visit(g + 1, {sum.bits + each.bits, sum.error + each.error});
  };
  visit(0, {});
  return least;
}

TEST(Knapsack, EqualsExhaustiveSearch) {
  std::mt19937 random(20261127);
  for (int k = 0; k < 300; ++k) {
    const Groups groups = random_groups(random, 1 + random() % 6, k % 2 == 0 ? 12 : 1'000'000);
    const Knapsack knapsack(groups);
    for (int b = 0; b < 8; ++b) {
      const auto bits = static_cast<std::int64_t>(random() % (k % 2 == 0 ? 72 : 6'000'000));
      const auto found = knapsack.within(bits);
      const double least = least_error(groups, bits);
      ASSERT_EQ(found.has_value(), std::isfinite(least)) << k << " " << bits;
      if (!found) continue;
      const KnapsackOption sum = sum_of(groups, knapsack.options_of(*found));
      EXPECT_LE(sum.bits, bits);
      EXPECT_EQ(sum.bits, knapsack.curve()[*found].bits);
      EXPECT_NEAR(sum.error, least, 1e-12 * (1 + least)) << k << " " << bits;
    }
  }
}

TEST(Knapsack, IsMonotoneAndNeverExceedsManyGroups) {
  std::mt19937 random(7);
  const Groups groups = random_groups(random, 150, 3'000'000);
  const Knapsack knapsack(groups);
  const auto& curve = knapsack.curve();
  ASSERT_GT(curve.size(), 1000u);
  for (std::size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i].bits, curve[i - 1].bits);
    EXPECT_LT(curve[i].error, curve[i - 1].error);
  }
  std::int64_t fewest = 0;
  for (const auto& options : groups) fewest += std::ranges::min(options, {}, &KnapsackOption::bits).bits;
  EXPECT_EQ(curve.front().bits, fewest);
  EXPECT_FALSE(knapsack.within(fewest - 1));
  // No Lagrangian choice, which is the best of all with its bits, is better by more than what thinning may cost.
  for (const double price : {1e-8, 1e-7, 3e-7, 1e-6, 1e-5}) {
    std::vector<std::size_t> chosen;
    for (const auto& options : groups)
      chosen.push_back(static_cast<std::size_t>(
          std::ranges::min_element(
              options, {}, [&](const KnapsackOption& o) { return o.error + price * static_cast<double>(o.bits); }) -
          options.begin()));
    const KnapsackOption best = sum_of(groups, chosen);
    const auto found = knapsack.within(best.bits);
    ASSERT_TRUE(found);
    const KnapsackOption sum = sum_of(groups, knapsack.options_of(*found));
    EXPECT_LE(sum.bits, best.bits);
    EXPECT_LE(sum.error, best.error * 1.01) << price;
  }
}

TEST(Knapsack, CountsErrorsThatAreNoNumbersAsVeryLarge) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Knapsack knapsack({{{4, inf}, {8, 1}}, {{4, nan}, {8, 2}}});
  EXPECT_EQ(knapsack.options_of(*knapsack.within(16)), (std::vector<std::size_t>{1, 1}));
  EXPECT_EQ(knapsack.curve().back().error, 3);
  EXPECT_EQ(knapsack.options_of(*knapsack.within(8)), (std::vector<std::size_t>{0, 0}));
  EXPECT_FALSE(knapsack.within(7));
}

}  // namespace
}  // namespace ulpscope
