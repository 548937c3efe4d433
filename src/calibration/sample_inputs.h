// Samples as an executable of a network takes them.
#pragma once

#include <vector>

#include "compare/data_loader.h"
#include "compare/tensor_map.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// The inputs of a sample, in the order of the bindings.
std::vector<Tensor> physical_inputs(const TensorMap& sample, const std::vector<InputBinding>& bindings);

}  // namespace ulpscope
