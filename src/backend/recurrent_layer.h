// Recurrent layers that backends have kernels of their own for.
#pragma once

#include <optional>

#include "engine/kernels.h"
#include "ops/recurrent/form.h"

namespace ulpscope {

/// Inputs of LSTM, GRU and RNN.
struct RecurrentInput {
  static constexpr std::size_t kX = 0, kW = 1, kR = 2, kB = 3, kHidden = 5, kCell = 6, kPeephole = 7;
};

/// What the layer computes, where its parameters are constants, values are held as float32, and no size is 0. Nothing
/// for all others, which the operator's reference kernel computes.
std::optional<ops::RecurrentForm> recurrent_layer(const Specialization& spec, const LayerKernel& kernel);

}  // namespace ulpscope
