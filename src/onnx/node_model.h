// One layer as a model of its own.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "graph/network.h"

namespace ulpscope {

/// What a model of one node says of an input.
struct NodeInput {
  DataType type = DataType::kUndefined;
  std::optional<Shape> shape;  ///< Nothing: not even the rank.
  std::optional<Tensor> value;  ///< A constant of the model, and no input that has to be given.
};

/// A serialized model of one node: the operator, version and attributes of `layer`. Its inputs are called "i0", "i1",
/// ..., its outputs "o0", "o1", ...; those that are nothing here and kNone in the layer are absent. Of outputs it says
/// neither types nor shapes. Throws Error(kUnsupported) for attributes that are graphs.
std::string node_model(const Layer& layer, std::span<const std::optional<NodeInput>> inputs);

}  // namespace ulpscope
