// Constants that are computed of others, kept once for all networks that have the same.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// Names what a layer computes of these constants: equal for layers, of any network, that compute the same of the same
/// tensors. Nothing for layers that have tensors or graphs as attributes, and for inputs that nobody owns. `inputs`:
/// null where an input is absent.
std::optional<std::string> name_of_values(const Network& network, const Layer& layer,
                                          std::span<const Tensor* const> inputs);

/// The tensors that `make` gives, or those that it gave under the same name while somebody still has them and while
/// `sources`, whose bytes they are made of, are the same buffers. Nobody may change their elements. Thread-safe.
std::vector<Tensor> shared_values(const std::string& name, std::span<const Tensor* const> sources,
                                  const std::function<std::vector<Tensor>()>& make);

}  // namespace ulpscope
