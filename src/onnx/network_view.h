// A network in the form of an ONNX model, to look at.
#pragma once

#include <string>

#include "graph/network.h"

namespace ulpscope {

/// A serialized model with a node for each layer, under the names and with the types and shapes that the network has,
/// and without weights: where elements were there is a text such as "float32 [64, 3, 7, 7]". Requested types are
/// attributes ("precision", "output_types"). Viewers show it; it cannot be run.
std::string network_as_onnx(const Network& network);

}  // namespace ulpscope
