#include "convert/cast_problem.h"

#include <algorithm>
#include <limits>

#include "engine/min_cut.h"

namespace ulpscope {
namespace {

bool contains(const std::vector<DataType>& types, DataType type) {
  return std::ranges::find(types, type) != types.end();
}

/// What a free node in float32 costs: less than one cast for all of them together.
double wide_cost(const CastProblem& problem) { return 0.5 / (1.0 + static_cast<double>(problem.nodes.size())); }

/// One minimum cut: nodes that are and may be of both types of the pair choose anew, the others stay.
class PairCut {
 public:
  PairCut(const CastProblem& problem, const std::vector<DataType>& types, DataType low)
      : problem_(problem), types_(types), low_(low), cut_(0), variable_(problem.nodes.size(), -1) {}

  /// The source side is `low`, the sink side float32.
  std::vector<DataType> solve() {
    for (std::size_t n = 0; n < types_.size(); ++n) {
      const auto& allowed = problem_.nodes[n].types;
      if (!contains(allowed, low_) || !contains(allowed, DataType::kFloat32)) continue;
      if (types_[n] != low_ && types_[n] != DataType::kFloat32) continue;
      variable_[n] = cut_.add_node();
      cut_.add_terminal(variable_[n], wide_cost(problem_), 0);
    }
    for (const CastProblem::Value& value : problem_.values) add_value(value);
    cut_.solve();
    std::vector<DataType> result = types_;
    for (std::size_t n = 0; n < result.size(); ++n)
      if (variable_[n] >= 0) result[n] = cut_.on_source_side(variable_[n]) ? low_ : DataType::kFloat32;
    return result;
  }

 private:
  int variable(int node) const { return variable_[node]; }
  DataType type(int node) const { return types_[node]; }

  void add_value(const CastProblem::Value& value) {
    const int producer = variable(value.producer);
    const bool lossy = !contains(value.exact, low_);
    if (producer >= 0 && lossy && value.exact_reader) cut_.add_terminal(producer, 0, MinCut::kInfinite);
    for (DataType wanted : {low_, DataType::kFloat32}) {
      // `any` is on the side of `wanted` if any reader reads the value in that type.
      const bool is_low = wanted == low_;
      int any = -1;
      bool always = false;
      for (int reader : value.readers) {
        if (variable(reader) < 0) {
          always |= type(reader) == wanted;
          continue;
        }
        if (any < 0) any = cut_.add_node();
        if (is_low)
          cut_.add_edge(variable(reader), any, MinCut::kInfinite);
        else
          cut_.add_edge(any, variable(reader), MinCut::kInfinite);
      }
      if (any < 0 && !always) continue;
      if (any < 0) any = cut_.add_node();
      if (always) cut_.add_terminal(any, is_low ? MinCut::kInfinite : 0, is_low ? 0 : MinCut::kInfinite);
      if (producer >= 0) {
        // Written in the other type: one cast; narrowed although a reader wants all of it: not allowed.
        const double price = !is_low && lossy ? MinCut::kInfinite : 1.0;
        if (is_low)
          cut_.add_edge(any, producer, price);
        else
          cut_.add_edge(producer, any, price);
      } else if (type(value.producer) != wanted) {
        cut_.add_terminal(any, is_low ? 0 : 1, is_low ? 1 : 0);
      }
    }
    // A reader in a third type stays what it is.
    if (producer >= 0 && lossy)
      for (int reader : value.readers)
        if (variable(reader) < 0 && type(reader) != low_ && type(reader) != DataType::kFloat32)
          cut_.add_terminal(producer, 0, MinCut::kInfinite);
  }

  const CastProblem& problem_;
  const std::vector<DataType>& types_;
  const DataType low_;
  MinCut cut_;
  std::vector<int> variable_;
};

}  // namespace

int CastProblem::casts(const std::vector<DataType>& types) const {
  int result = 0;
  for (const Value& value : values) {
    std::vector<DataType> wanted;
    const DataType written = types[value.producer];
    for (int reader : value.readers) {
      const DataType type = types[reader];
      if (type != written && !contains(wanted, type)) wanted.push_back(type);
    }
    result += static_cast<int>(wanted.size());
  }
  return result;
}

double CastProblem::cost(const std::vector<DataType>& types) const {
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (!contains(nodes[n].types, types[n])) return std::numeric_limits<double>::infinity();
  for (const Value& value : values) {
    const DataType written = types[value.producer];
    if (contains(value.exact, written)) continue;
    const bool narrowed =
        value.exact_reader || std::ranges::any_of(value.readers, [&](int r) { return types[r] != written; });
    // A node that has no choice writes what it writes: its elements are exact by definition.
    if (narrowed && nodes[value.producer].types.size() > 1) return std::numeric_limits<double>::infinity();
  }
  double result = casts(types);
  for (std::size_t n = 0; n < nodes.size(); ++n)
    if (nodes[n].types.size() > 1 && types[n] == DataType::kFloat32) result += wide_cost(*this);
  return result;
}

std::vector<DataType> minimize(const CastProblem& problem) {
  std::vector<DataType> types;
  std::vector<DataType> low;
  for (const CastProblem::Node& node : problem.nodes) {
    types.push_back(node.types.front());
    for (DataType type : node.types)
      if (type != DataType::kFloat32 && node.types.size() > 1 && !contains(low, type)) low.push_back(type);
  }
  double best = problem.cost(types);
  for (bool improved = true; improved;) {
    improved = false;
    for (DataType type : low) {
      std::vector<DataType> next = PairCut(problem, types, type).solve();
      const double cost = problem.cost(next);
      if (cost >= best - 1e-9) continue;
      best = cost;
      types = std::move(next);
      improved = true;
    }
    if (low.size() < 2) break;
  }
  return types;
}

}  // namespace ulpscope
