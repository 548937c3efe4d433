// Layers whose weights are known before anything runs.
#pragma once

#include <algorithm>

#include "engine/specialization.h"

namespace ulpscope {

/// All inputs but the first are constants, or absent: weights, biases, parameters.
inline bool has_constant_parameters(const Specialization& spec, const Layer& layer) {
  return std::all_of(layer.inputs.begin() + 1, layer.inputs.end(),
                     [&](TensorId input) { return input == kNone || spec.is_constant(input); });
}

}  // namespace ulpscope
