// A network as scripts see it: a plain description, sent once each way.
#pragma once

#include <memory>

#include "graph/network.h"
#include "runners/value.h"

namespace ulpscope {

/// Layers, tensors, inputs and outputs, without the elements of constants; those of bodies are among them
/// (runners/flat_network.h). Layer types carry TensorRT's names.
/// `handle` is what the worker names this network by when it asks for elements.
Value describe_network(const Network& network, int handle);

/// The network that a script left behind: a copy of `base` (null: built by hand) with the description's changes.
/// Precisions, output types, names, outputs, and inputs of layers may change; layers may be added: what TensorRT's
/// `add_*` makes is ONNX operators by then, at the opset that the description names. Layers are sorted, types inferred.
/// Throws Error(kScript): unknown operators, cycles, equal names, a network without outputs, a tensor of a body outside
/// of it; and Error(kUnsupported) for other inputs of a layer in a body.
std::shared_ptr<Network> apply_description(const Network* base, const Value& description, const OpRegistry& ops);

/// Types and shapes of all tensors of the description, for a script that asks: an array of [type, shape] per tensor,
/// null where unknown. -1 for dimensions that depend on dynamic ones.
Value infer_description(const Network* base, const Value& description, const OpRegistry& ops);

/// The elements of a constant that a script names by its number; null: it is none.
Tensor constant_of(const Network& network, std::int64_t number);

/// TensorRT's LayerType of a layer ("MATRIX_MULTIPLY", "ELEMENTWISE", ...).
std::string_view tensorrt_layer_type(const Layer& layer);

}  // namespace ulpscope
