// Named tensors in an order that matters: what goes into a network and what comes out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Names are unique; the order is that of the network, or of the file.
using TensorMap = std::vector<NamedTensor>;

/// Null when there is no tensor of this name.
inline const Tensor* find_tensor(const TensorMap& tensors, std::string_view name) {
  for (const NamedTensor& entry : tensors)
    if (entry.name == name) return &entry.tensor;
  return nullptr;
}

}  // namespace ulpscope
