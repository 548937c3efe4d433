// The table of strategies: how many layers each keeps, in how many evaluations, and how many held-out samples pass.
#pragma once

#include "cases.h"

namespace ulpscope::bench {

struct Row {
  std::string strategy;
  std::size_t kept = 0;
  std::int64_t evaluations = 0;
  double cost_share = 0;
  int held_out_passed = 0, held_out = 0;
  bool found = false;
};

/// Every strategy on one case, at `margin` times the tolerance; the search at half of it as well.
std::vector<Row> compare_strategies(const Case& which, const std::filesystem::path& models, int threads, double margin);

/// As a Markdown table, followed by a line for each strategy that keeps fewer layers than the search in as few
/// evaluations.
void print_table(const Case& which, const std::vector<Row>& rows);

}  // namespace ulpscope::bench
