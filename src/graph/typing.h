// The types of a strongly typed file: what every layer writes and in which type it reads.
#pragma once

#include <utility>
#include <vector>

#include "formats/rounding.h"
#include "graph/network.h"

namespace ulpscope {

struct Typing {
  /// How a layer reads one input.
  struct Read {
    DataType type = DataType::kUndefined;  ///< kUndefined: as it is written.
    /// For a constant: rounded by this before it is stored in `type`, which holds what is left.
    Rounding first = Rounding::kNone;
  };
  IdMap<TensorId, DataType>
      written;  ///< Per tensor: the type that its producer writes; the declared one of a constant.
  IdMap<LayerId, std::vector<Read>> reads;  ///< Per layer and input.
  std::vector<DataType> outputs;            ///< Per network output: the type that callers get.
  /// Per tensor: readers get a constant of their own, in the type that they read: weights, Constant nodes, and what is
  /// computed from constants alone.
  IdMap<TensorId, char> constant;
  /// Layers that compute in another type than the assignment's, to the same bits.
  std::vector<std::pair<LayerId, DataType>> moved;
  int casts = 0;  ///< One per tensor and type that is read but not written.
};

}  // namespace ulpscope
