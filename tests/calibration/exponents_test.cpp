// Integer equations among exponents, and the cheapest of their solutions.
#include "calibration/exponents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ulpscope {
namespace {

using ::testing::ElementsAre;

ExponentCost distance(Exponent exponent, int wanted, double weight = 1) {
  ExponentCost cost{std::move(exponent), {}};
  for (int e = -ExponentCost::kLargest; e <= ExponentCost::kLargest; ++e)
    cost.cost[static_cast<std::size_t>(e + ExponentCost::kLargest)] = weight * std::abs(e - wanted);
  return cost;
}

TEST(Exponents, AddAndSubtract) {
  const Exponent a = Exponent::of(1, 2).plus(Exponent::of(0)), b = Exponent::of(1).times(-2).plus(Exponent::of(4), 3);
  const Exponent sum = a.plus(b);
  EXPECT_EQ(sum, Exponent::of(0).plus(Exponent::of(4, 3)));
  EXPECT_TRUE(sum.plus(sum, -1).is_zero());
  const std::vector<int> values{5, 7, 0, 0, -2};
  EXPECT_EQ(a.at(values), 19);
  EXPECT_EQ(b.at(values), -20);
}

TEST(Exponents, ConstantsAreSolvedForBeforeInsertions) {
  ExponentSystem system;
  const int insertion = system.add_variable(3), constant = system.add_variable(0);
  system.equate(Exponent::of(insertion).plus(Exponent::of(constant)), {});
  EXPECT_EQ(system.reduced(Exponent::of(constant)), Exponent::of(insertion, -1));
  EXPECT_EQ(system.reduced(Exponent::of(insertion)), Exponent::of(insertion));
}

TEST(Exponents, ASquareRootOfThreeTimesAVariable) {
  // 2 h = 3 a: no factor is 1, and a has to be even.
  ExponentSystem system;
  const int a = system.add_variable(0), h = system.add_variable(1);
  system.equate(Exponent::of(h, 2), Exponent::of(a, 3));
  const Exponent of_a = system.reduced(Exponent::of(a)), of_h = system.reduced(Exponent::of(h));
  EXPECT_EQ(of_a.largest_factor(), 2);
  EXPECT_EQ(of_h.largest_factor(), 3);
  EXPECT_TRUE(of_h.times(2).plus(of_a, -3).is_zero());
}

TEST(Exponents, RandomSystemsHoldForEveryValueOfWhatIsFree) {
  std::mt19937 random(20261122);
  const auto number = [&](int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    ExponentSystem system;
    const int variables = number(2, 8);
    for (int v = 0; v < variables; ++v) system.add_variable(number(0, 3));
    std::vector<Exponent> zero;
    for (int e = number(1, 6); e > 0; --e) {
      Exponent sum;
      for (int term = number(1, 4); term > 0; --term)
        sum = sum.plus(Exponent::of(number(0, variables - 1), number(-4, 4)));
      system.equate(sum, {});
      zero.push_back(sum);
    }
    std::vector<int> free(static_cast<std::size_t>(system.variables()));
    for (int& value : free) value = number(-3, 3);
    // What the variables of the equations are, once the free ones have values.
    std::vector<int> values;
    for (int v = 0; v < variables; ++v) values.push_back(static_cast<int>(system.reduced(Exponent::of(v)).at(free)));
    for (const Exponent& each : zero) EXPECT_EQ(each.at(values), 0);
  }
}

TEST(Exponents, TheCheapestValuesMeetTheirTargets) {
  const std::vector<ExponentCost> costs{distance(Exponent::of(0), -9),
                                        distance(Exponent::of(0).plus(Exponent::of(1)), 4)};
  EXPECT_THAT(cheapest_values(2, costs), ElementsAre(-9, 13));
}

TEST(Exponents, TwoMoveTogetherWhereOneCannot) {
  // The first is far too large; the second has to follow it.
  std::vector<ExponentCost> costs{distance(Exponent::of(0), -5, 10),
                                  distance(Exponent::of(0).plus(Exponent::of(1), -1), 0, 100)};
  EXPECT_THAT(cheapest_values(2, costs), ElementsAre(-5, -5));
}

TEST(Exponents, NothingMovesWithoutGain) {
  const std::vector<ExponentCost> costs{distance(Exponent::of(0), 0), distance(Exponent::of(1, 2), 0)};
  EXPECT_THAT(cheapest_values(3, costs), ElementsAre(0, 0, 0));
}

TEST(Exponents, ForbiddenValuesAreNotTaken) {
  ExponentCost even = distance(Exponent::of(0), 7);
  for (int e = 3; e <= ExponentCost::kLargest; ++e)
    even.cost[static_cast<std::size_t>(e + ExponentCost::kLargest)] = INFINITY;
  EXPECT_THAT(cheapest_values(1, std::vector{even}), ElementsAre(2));
}

}  // namespace
}  // namespace ulpscope
