// Shapes, types and known values of a whole network.
#pragma once

#include <optional>
#include <vector>

#include "graph/network.h"

namespace ulpscope {

/// What is known of the tensors of a network for given input shapes.
struct InferredNetwork {
  IdMap<TensorId, DataType> types;  ///< Never kUndefined for a tensor that a layer writes, unless the op cannot tell.
  IdMap<TensorId, std::optional<Shape>> shapes;  ///< Without -1. Nothing: known at run time only.
  IdMap<TensorId, Tensor> values;  ///< Elements known beforehand (physical types); empty tensor: not known.
};

/// Infers types only (no shapes are assumed). Sets TensorInfo::type where the file left it open.
void infer_types(Network& network);

/// Sets TensorInfo::shape, where the file left it open, of what bodies of loops read of this network: as it follows
/// from the shapes of the network's inputs, -1 for dimensions that change with theirs. Nothing changes where open
/// dimensions do not fit as one number. REQUIRES: infer_types was called.
void infer_captured_shapes(Network& network);

/// Throws Error(kUnsupported), naming the layer and the input, for an element type that no kernel takes (OpDef::types);
/// bodies of control flow count. REQUIRES: infer_types was called.
void check_types(const Network& network);

/// Infers everything for these shapes of the network's inputs (in the order of Network::inputs). Layers whose inputs
/// are all known are evaluated in fp32 or wider ("constant folding"), integers and shapes always, floats up to
/// `max_folded_elements` elements per output. Checks the types. Throws Error(kInvalidFile) naming the layer when shapes
/// do not fit.
InferredNetwork infer(const Network& network, const std::vector<Shape>& input_shapes,
                      std::int64_t max_folded_elements = std::int64_t{1} << 62);

/// The shapes that a body gets first, for those of the network around it: its formal inputs, then what it captures.
/// Nothing: not known.
std::vector<std::optional<Shape>> body_input_shapes(const Network& network,
                                                    const IdMap<TensorId, std::optional<Shape>>& shapes,
                                                    const Body& body);

/// Calls the rules of one layer. `inputs` as in InferContext.
std::vector<InferContext::Output> infer_layer(const Layer& layer, std::span<const InferContext::Input> inputs);

}  // namespace ulpscope
