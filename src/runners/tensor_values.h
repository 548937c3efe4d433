// Tensors by name, as the worker has them: [name, tensor] each.
#pragma once

#include "compare/tensor_map.h"
#include "runners/value.h"

namespace ulpscope {

inline Value value_of(const TensorMap& tensors) {
  Value::Array result;
  for (const NamedTensor& each : tensors) result.emplace_back(Value::Array{each.name, each.tensor});
  return result;
}

/// Throws Error(kScript) for anything else.
inline TensorMap tensors_from(const Value& value) {
  TensorMap result;
  for (const Value& each : value.array()) result.push_back({each.array().at(0).text(), each.array().at(1).tensor()});
  return result;
}

}  // namespace ulpscope
