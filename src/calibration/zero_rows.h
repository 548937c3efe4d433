// Where data may be nothing but zeros, so that an epsilon is all that is left.
#pragma once

#include <map>

#include "engine/specialization.h"
#include "graph/network.h"

namespace ulpscope {

/// Whether whole rows of tensors may be 0 that no sample has, by what made them: inputs are as the samples have them,
/// but what clamps (Relu) or selects may be 0; a sum is 0 where all its operands are; a row of a table (an embedding)
/// is 0 where the table has such rows; a Softmax never is. Operators that are not known may make zeros.
class ZeroRows {
 public:
  /// `spec` outlives it.
  explicit ZeroRows(const Specialization& spec);
  bool possible(TensorId id);

 private:
  bool may_make(const Layer& layer);

  const Specialization& spec_;
  std::map<TensorId, bool> known_;
};

}  // namespace ulpscope
