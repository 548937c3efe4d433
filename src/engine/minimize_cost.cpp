#include <algorithm>
#include <set>

#include "engine/cost.h"
#include "engine/min_cut.h"

namespace ulpscope {

namespace {

/// True when all nodes choose among the same two storage types (or one of them); gives the two.
bool two_types(const CostProblem& problem, DataType& low) {
  std::set<DataType> types;
  for (std::size_t n = 0; n < problem.nodes.size(); ++n) {
    std::set<DataType> own;
    for (std::size_t c = 0; c < problem.nodes[n].choices.size(); ++c)
      if (!own.insert(problem.storage(static_cast<int>(n), static_cast<int>(c))).second) return false;
    types.insert(own.begin(), own.end());
  }
  types.insert(DataType::kFloat32);
  if (types.size() > 2) return false;
  low = DataType::kFloat32;
  for (DataType type : types)
    if (type != DataType::kFloat32) low = type;
  return true;
}

/// Source side: float32; sink side: the narrow type.
std::vector<int> minimize_two(const CostProblem& problem, DataType low) {
  const int count = static_cast<int>(problem.nodes.size());
  MinCut cut(count);
  const auto index_of = [&](int node, DataType type) {
    const auto& choices = problem.nodes[node].choices;
    for (std::size_t c = 0; c < choices.size(); ++c)
      if (problem.storage(node, static_cast<int>(c)) == type) return static_cast<int>(c);
    return -1;
  };
  for (int n = 0; n < count; ++n) {
    const int narrow = index_of(n, low), wide = index_of(n, DataType::kFloat32);
    const auto& cost = problem.nodes[n].cost;
    cut.add_terminal(n, low != DataType::kFloat32 && narrow >= 0 ? cost[narrow] : MinCut::kInfinite,
                     wide >= 0 ? cost[wide] : MinCut::kInfinite);
  }
  for (const CostProblem::Value& value : problem.values) {
    // Wide value, some narrow reader: one cast.
    const int narrowed = cut.add_node();
    if (value.producer < 0)
      cut.add_terminal(narrowed, value.cast_us(), 0);
    else
      cut.add_edge(value.producer, narrowed, value.cast_us());
    for (int consumer : value.consumers) cut.add_edge(narrowed, consumer, MinCut::kInfinite);
    if (value.producer < 0) continue;
    // Narrow value, some wide reader: one cast.
    const int widened = cut.add_node();
    cut.add_edge(widened, value.producer, value.cast_us());
    for (int consumer : value.consumers) cut.add_edge(consumer, widened, MinCut::kInfinite);
    if (value.output) cut.add_terminal(widened, MinCut::kInfinite, 0);
  }
  for (const CostProblem::Link& link : problem.links) cut.add_edge(link.a, link.b, link.broken_us, link.broken_us);
  cut.solve();
  std::vector<int> result(problem.nodes.size());
  for (int n = 0; n < count; ++n) {
    const int wanted = index_of(n, cut.on_source_side(n) ? DataType::kFloat32 : low);
    result[n] = wanted >= 0 ? wanted : 0;
  }
  return result;
}

/// One expansion move: every node keeps its choice (source side) or takes precision `alpha` (sink side).
std::vector<int> expand(const CostProblem& problem, const std::vector<int>& current, Precision alpha) {
  const int count = static_cast<int>(problem.nodes.size());
  MinCut cut(count);
  std::vector<int> moved = current;
  for (int n = 0; n < count; ++n) {
    const auto& node = problem.nodes[n];
    const auto found = std::ranges::find(node.choices, alpha);
    const bool possible = found != node.choices.end();
    if (possible) moved[n] = static_cast<int>(found - node.choices.begin());
    cut.add_terminal(n, possible ? node.cost[moved[n]] : MinCut::kInfinite, node.cost[current[n]]);
  }
  const auto type = [&](int node, bool sink) { return problem.storage(node, (sink ? moved : current)[node]); };
  // Differences of types cost a constant: a metric, so the pairwise terms below are submodular.
  const auto pair = [&](int a, int b, double cost) {
    const auto theta = [&](bool x, bool y) { return type(a, x) != type(b, y) ? cost : 0.0; };
    const double stay = theta(false, false), a_moves = theta(true, false), b_moves = theta(false, true),
                 both = theta(true, true);
    cut.add_terminal(a, a_moves, stay);
    cut.add_terminal(b, both - a_moves > 0 ? both - a_moves : 0, both - a_moves < 0 ? a_moves - both : 0);
    cut.add_edge(a, b, std::max(0.0, b_moves + a_moves - stay - both));
  };
  for (const CostProblem::Value& value : problem.values) {
    for (int consumer : value.consumers) {
      if (value.producer >= 0)
        pair(value.producer, consumer, value.cast_us());
      else
        cut.add_terminal(consumer, type(consumer, true) != DataType::kFloat32 ? value.cast_us() : 0,
                         type(consumer, false) != DataType::kFloat32 ? value.cast_us() : 0);
    }
    if (value.output && value.producer >= 0)
      cut.add_terminal(value.producer, type(value.producer, true) != DataType::kFloat32 ? value.cast_us() : 0,
                       type(value.producer, false) != DataType::kFloat32 ? value.cast_us() : 0);
  }
  for (const CostProblem::Link& link : problem.links) pair(link.a, link.b, link.broken_us);
  cut.solve();
  std::vector<int> result = current;
  for (int n = 0; n < count; ++n)
    if (!cut.on_source_side(n)) result[n] = moved[n];
  return result;
}

}  // namespace

std::vector<int> minimize(const CostProblem& problem) {
  if (problem.nodes.empty()) return {};
  DataType low;
  if (two_types(problem, low)) return minimize_two(problem, low);
  std::set<Precision> labels;
  for (const auto& node : problem.nodes) labels.insert(node.choices.begin(), node.choices.end());
  const auto uniform = [&](Precision wanted) {
    std::vector<int> result;
    for (const auto& node : problem.nodes) {
      const auto found = std::ranges::find(node.choices, wanted);
      result.push_back(found != node.choices.end() ? static_cast<int>(found - node.choices.begin())
                                                   : static_cast<int>(node.choices.size()) - 1);
    }
    return result;
  };
  std::vector<int> best = uniform(Precision::kFP32);
  for (Precision label : labels)
    if (std::vector<int> candidate = uniform(label); problem.energy(candidate) < problem.energy(best))
      best = std::move(candidate);
  double energy = problem.energy(best);
  for (bool improved = true; improved;) {
    improved = false;
    for (Precision label : labels) {
      std::vector<int> candidate = expand(problem, best, label);
      const double value = problem.energy(candidate);
      if (value < energy - 1e-9) {
        best = std::move(candidate);
        energy = value;
        improved = true;
      }
    }
  }
  return best;
}

}  // namespace ulpscope
