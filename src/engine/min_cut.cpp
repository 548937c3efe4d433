#include "engine/min_cut.h"

#include <algorithm>
#include <cstddef>

namespace ulpscope {
namespace {
constexpr double kEpsilon = 1e-12;  // Microseconds: far below any cost, far above rounding.
}

MinCut::MinCut(int nodes) : first_(static_cast<std::size_t>(nodes) + 2, -1), source_(nodes), sink_(nodes + 1) {}

int MinCut::add_node() {
  first_.push_back(-1);
  return static_cast<int>(first_.size()) - 1;
}

void MinCut::add_edge(int from, int to, double capacity, double reverse) {
  edges_.push_back({to, first_[from], capacity});
  first_[from] = static_cast<int>(edges_.size()) - 1;
  edges_.push_back({from, first_[to], reverse});
  first_[to] = static_cast<int>(edges_.size()) - 1;
}

void MinCut::add_terminal(int node, double if_sink, double if_source) {
  const double common = std::min(if_sink, if_source);
  constant_ += common;
  if (if_sink > common) add_edge(source_, node, if_sink - common);
  if (if_source > common) add_edge(node, sink_, if_source - common);
}

bool MinCut::reach_sink() {
  level_.assign(first_.size(), -1);
  std::vector<int> queue{source_};
  level_[source_] = 0;
  for (std::size_t head = 0; head < queue.size(); ++head)
    for (int e = first_[queue[head]]; e >= 0; e = edges_[e].next) {
      const Edge& edge = edges_[e];
      if (edge.left <= kEpsilon || level_[edge.to] >= 0) continue;
      level_[edge.to] = level_[queue[head]] + 1;
      queue.push_back(edge.to);
    }
  return level_[sink_] >= 0;
}

double MinCut::push(int node, double limit) {
  if (node == sink_) return limit;
  for (int& e = current_[node]; e >= 0; e = edges_[e].next) {
    Edge& edge = edges_[e];
    if (edge.left <= kEpsilon || level_[edge.to] != level_[node] + 1) continue;
    const double flow = push(edge.to, std::min(limit, edge.left));
    if (flow <= kEpsilon) continue;
    edge.left -= flow;
    edges_[e ^ 1].left += flow;
    return flow;
  }
  return 0;
}

double MinCut::solve() {
  double total = constant_;
  while (reach_sink()) {
    current_ = first_;
    for (double flow; (flow = push(source_, kInfinite)) > kEpsilon;) total += flow;
  }
  return total;
}

}  // namespace ulpscope
