// Runs layers with their reference kernels, one after the other: for constant folding, and as the oracle of tests.
#pragma once

#include <span>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// The same elements in the type that kernels hold them in; shares the bytes where that is the type they have.
Tensor to_physical(const Tensor& tensor);

/// The outputs of one layer, physical types. `inputs` has null for absent inputs. Sub-graphs are run by `runner`, or by
/// the reference interpreter when it is null.
std::vector<Tensor> evaluate_layer(const Network& network, const Layer& layer, std::span<const Tensor* const> inputs,
                                   SubgraphRunner* runner = nullptr);

/// The outputs of a network, physical types (float16 as float32), without any rounding to narrow types inside of
/// layers; a tensor that the file declares float16 or bfloat16 is rounded to it.
std::vector<Tensor> evaluate(const Network& network, std::span<const Tensor> inputs);

}  // namespace ulpscope
