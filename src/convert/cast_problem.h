// Where casts go: the labeling problem, without networks.
#pragma once

#include <vector>

#include "ulpscope/data_type.h"

namespace ulpscope {

/// Every node writes one type, and reads its values in that type.
struct CastProblem {
  struct Node {
    /// The types to choose from, the one that is always allowed first. One: there is nothing to choose.
    std::vector<DataType> types;
  };
  struct Value {
    int producer = 0;
    std::vector<int> readers;  ///< Nodes; each once.
    /// The types that hold its elements exactly. It may be written in another type only if every reader reads that
    /// type: rounding then comes earlier, with the same result.
    std::vector<DataType> exact;
    /// Some reader takes it in any type, but needs the exact elements.
    bool exact_reader = false;
  };
  std::vector<Node> nodes;
  std::vector<Value> values;

  /// The number of casts, one for each value and type that is read but not written; among equal numbers, the share of
  /// free nodes that work on float32 counts, which is less than one cast. Infinite for types that are not allowed.
  double cost(const std::vector<DataType>& types) const;
  int casts(const std::vector<DataType>& types) const;
};

/// The cheapest types, per node. Exact where all nodes choose among the same two types (minimum cut); with float16 and
/// bfloat16 in one network, repeated minimum cuts of float32 against either until none improves.
std::vector<DataType> minimize(const CastProblem& problem);

}  // namespace ulpscope
