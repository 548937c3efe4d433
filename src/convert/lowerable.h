// Small questions that all of convert/ asks.
#pragma once

#include "graph/assignment.h"

namespace ulpscope {

/// A float type that a typed file may hold a lowered tensor in.
inline bool is_lowerable(DataType type) {
  return type == DataType::kFloat32 || type == DataType::kFloat16 || type == DataType::kBFloat16;
}

inline bool is_narrow(Precision precision) { return precision == Precision::kFP16 || precision == Precision::kBF16; }

}  // namespace ulpscope
