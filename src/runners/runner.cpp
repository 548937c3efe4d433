#include "runners/runner.h"

namespace ulpscope {

const Tensor* find_tensor(const TensorMap& tensors, std::string_view name) {
  for (const NamedTensor& entry : tensors)
    if (entry.name == name) return &entry.tensor;
  return nullptr;
}

}  // namespace ulpscope
