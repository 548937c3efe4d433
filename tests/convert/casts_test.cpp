// The placement of casts against trying every choice of types.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "convert/cast_problem.h"

namespace ulpscope {
namespace {

using Types = std::vector<DataType>;
constexpr DataType kF32 = DataType::kFloat32, kF16 = DataType::kFloat16, kBF16 = DataType::kBFloat16;

/// The lowest cost over all choices for the nodes from `node` on.
double best_of_all(const CastProblem& problem, Types& types, std::size_t node = 0) {
  if (node == problem.nodes.size()) return problem.cost(types);
  double best = std::numeric_limits<double>::infinity();
  types.resize(problem.nodes.size());
  for (DataType type : problem.nodes[node].types) {
    types[node] = type;
    best = std::min(best, best_of_all(problem, types, node + 1));
  }
  return best;
}

/// A random order of nodes, most of them free; values that some types do not hold.
CastProblem random_problem(std::mt19937& random, const Types& low) {
  const auto pick = [&](std::size_t count) { return static_cast<int>(random() % count); };
  CastProblem problem;
  const int nodes = 3 + pick(8);
  for (int n = 0; n < nodes; ++n) {
    CastProblem::Node node;
    if (pick(3) == 0) {
      node.types = {pick(2) == 0 ? kF32 : low[pick(low.size())]};
    } else {
      node.types = {kF32};
      for (DataType type : low) node.types.push_back(type);
    }
    problem.nodes.push_back(node);
  }
  for (int n = 0; n + 1 < nodes; ++n) {
    CastProblem::Value value;
    value.producer = n;
    for (int r = n + 1; r < nodes; ++r)
      if (pick(3) == 0) value.readers.push_back(r);
    value.exact = {kF32};
    const auto& types = problem.nodes[n].types;
    if (types.size() == 1)
      value.exact = {types[0], kF32};
    else if (pick(2) == 0)
      value.exact.push_back(low[pick(low.size())]);
    value.exact_reader = pick(6) == 0;
    problem.values.push_back(value);
  }
  return problem;
}

TEST(CastProblem, TwoTypesAreSolvedExactly) {
  std::mt19937 random(7);
  for (int round = 0; round < 600; ++round) {
    const CastProblem problem = random_problem(random, {round % 2 == 0 ? kF16 : kBF16});
    Types types;
    const double best = best_of_all(problem, types);
    EXPECT_NEAR(problem.cost(minimize(problem)), best, 1e-9) << "round " << round;
  }
}

TEST(CastProblem, ThreeTypesAreAllowedAndNearlyAlwaysBest) {
  std::mt19937 random(11);
  int best_found = 0;
  for (int round = 0; round < 200; ++round) {
    CastProblem problem = random_problem(random, {kF16, kBF16});
    while (problem.nodes.size() > 8) problem = random_problem(random, {kF16, kBF16});
    Types types;
    const double best = best_of_all(problem, types), found = problem.cost(minimize(problem));
    EXPECT_TRUE(std::isfinite(found)) << "round " << round;
    EXPECT_GE(found, best - 1e-9);
    best_found += found <= best + 1e-9;
  }
  EXPECT_GE(best_found, 180);
}

TEST(CastProblem, OneCastServesAllReadersOfAType) {
  CastProblem problem;
  problem.nodes = {{{kF32}}, {{kF16}}, {{kF16}}, {{kF32}}};
  problem.values.push_back({0, {1, 2, 3}, {kF32}, false});
  EXPECT_EQ(problem.casts(minimize(problem)), 1);
}

TEST(CastProblem, AMoverOfFullValuesIsNarrowOnlyForNarrowReaders) {
  // x (float32) -> move -> float16, and once more to a reader in float32.
  CastProblem problem;
  problem.nodes = {{{kF32}}, {{kF32, kF16}}, {{kF16}}};
  problem.values.push_back({0, {1}, {kF32}, false});
  problem.values.push_back({1, {2}, {kF32}, false});
  EXPECT_EQ(minimize(problem)[1], kF16);
  problem.nodes.push_back({{kF32}});
  problem.values[1].readers.push_back(3);
  EXPECT_EQ(minimize(problem)[1], kF32);
  EXPECT_EQ(problem.casts(minimize(problem)), 1);
}

}  // namespace
}  // namespace ulpscope
