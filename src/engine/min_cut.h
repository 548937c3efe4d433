// Minimum cuts of directed graphs with real capacities.
#pragma once

#include <vector>

namespace ulpscope {

/// Dinic's algorithm (1970): augmenting flows along shortest paths. O(V^2 E), in practice near linear here.
class MinCut {
 public:
  explicit MinCut(int nodes);
  int add_node();
  static constexpr double kInfinite = 1e30;

  /// Cutting between `from` on the source side and `to` on the sink side costs `capacity`; the reverse costs `reverse`.
  void add_edge(int from, int to, double capacity, double reverse = 0);
  /// Cost of the node being on the sink side / on the source side.
  void add_terminal(int node, double if_sink, double if_source);

  /// The value of the minimum cut. Afterwards `on_source_side` tells the sides; of several minimum cuts it is the one
  /// with the smallest source side.
  double solve();
  bool on_source_side(int node) const { return level_[node] >= 0; }

 private:
  struct Edge {
    int to, next;
    double left;
  };
  bool reach_sink();
  double push(int node, double limit);

  std::vector<Edge> edges_;
  std::vector<int> first_, level_, current_;
  int source_, sink_;
  double constant_ = 0;
};

}  // namespace ulpscope
