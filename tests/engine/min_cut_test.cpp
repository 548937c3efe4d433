#include "engine/min_cut.h"

#include <gtest/gtest.h>

#include <random>

namespace ulpscope {
namespace {

TEST(MinCut, TakesTheCheaperTerminalOfALoneNode) {
  MinCut cut(2);
  cut.add_terminal(0, 1.0, 3.0);  // cheaper on the sink side
  cut.add_terminal(1, 5.0, 2.0);
  EXPECT_DOUBLE_EQ(cut.solve(), 3.0);
  EXPECT_FALSE(cut.on_source_side(0));
  EXPECT_TRUE(cut.on_source_side(1));
}

TEST(MinCut, AgreesWithEnumerationOnRandomGraphs) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> cost(0.0, 10.0);
  for (int trial = 0; trial < 200; ++trial) {
    const int n = 2 + static_cast<int>(random() % 9);
    std::vector<std::pair<double, double>> terminal;
    struct Edge {
      int a, b;
      double forward, backward;
    };
    std::vector<Edge> edges;
    MinCut cut(n);
    for (int i = 0; i < n; ++i) {
      terminal.emplace_back(cost(random), cost(random));
      cut.add_terminal(i, terminal.back().first, terminal.back().second);
    }
    for (int e = 0; e < 2 * n; ++e) {
      const int a = static_cast<int>(random() % static_cast<unsigned>(n)),
                b = static_cast<int>(random() % static_cast<unsigned>(n));
      if (a == b) continue;
      edges.push_back({a, b, cost(random), random() % 2 ? cost(random) : 0.0});
      cut.add_edge(a, b, edges.back().forward, edges.back().backward);
    }
    const auto value = [&](unsigned source_side) {
      double total = 0;
      for (int i = 0; i < n; ++i) total += source_side >> i & 1u ? terminal[i].second : terminal[i].first;
      for (const Edge& e : edges) {
        if ((source_side >> e.a & 1u) && !(source_side >> e.b & 1u)) total += e.forward;
        if (!(source_side >> e.a & 1u) && (source_side >> e.b & 1u)) total += e.backward;
      }
      return total;
    };
    double best = 1e300;
    for (unsigned mask = 0; mask < 1u << n; ++mask) best = std::min(best, value(mask));
    EXPECT_NEAR(cut.solve(), best, 1e-9);
    unsigned chosen = 0;
    for (int i = 0; i < n; ++i) chosen |= cut.on_source_side(i) ? 1u << i : 0u;
    EXPECT_NEAR(value(chosen), best, 1e-9);
  }
}

}  // namespace
}  // namespace ulpscope
