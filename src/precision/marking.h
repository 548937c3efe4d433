// Which layers of a network a precision tool may mark, and what marking them asks of the engine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/specialization.h"
#include "graph/network.h"

namespace ulpscope {

/// Per layer: true if marking it means something, as in Polygraphy: no Constant layers, none that compute shapes or
/// indices, none with an output that is not a float.
IdMap<LayerId, char> markable_layers(const Specialization& spec);
/// The same from the types that the file declares, where shapes are not known.
IdMap<LayerId, char> markable_layers(const Network& network);

/// A request per layer, for Trials::assign: `type` for the markable ones among `layers`, else what the network itself
/// asks for.
Requests mark_layers(const Network& network, const IdMap<LayerId, char>& markable, std::span<const int> layers,
                     DataType type);

/// The ONNX nodes of the markable ones among `layers`, in network order, each once; the layer's name where it came from
/// no node.
std::vector<std::string> marked_nodes(const Network& network, const IdMap<LayerId, char>& markable,
                                      std::span<const int> layers);

}  // namespace ulpscope
