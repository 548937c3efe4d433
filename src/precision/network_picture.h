// The network of a search as its answer tells it: layers, what they read, what they take, what they hold.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "precision/search_space.h"
#include "ulpscope/answer.h"

namespace ulpscope {

/// The layers that are left when constants are folded, in network order. `samples`: what the magnitudes are of, in
/// float32; empty: none are told. `see` gets the values, where these are in this process's memory; for several tensors
/// at once. Deterministic. `best`: the levels of the answer; null: nothing is raised.
std::vector<Answer::NetworkLayer> network_picture(
    SearchSpace& space, const Levels* best, std::span<const TensorMap> samples,
    const std::function<void(TensorId tensor, const Tensor& values)>& see);

}  // namespace ulpscope
