// The order of nodes and the values that sub-graphs take from around them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "onnx/functions.h"

namespace ulpscope::onnx_model {

/// Names that a graph uses without defining them, each once, in order of first use.
std::vector<std::string> free_values(const onnx::GraphProto& graph);

/// What the sub-graphs of a node take from around it; may repeat.
std::vector<std::string> captured_values(const onnx::NodeProto& node);

/// What a node reads: its inputs, then what its sub-graphs take from around it. Without empty names; may repeat.
std::vector<std::string> values_read(const onnx::NodeProto& node);

/// Sorts so that every value is computed before it is read; nodes that are in order stay in order. `is_defined` tells
/// which values exist without any of these nodes. Returns an empty text, or what is wrong (a value that nothing
/// defines, one that two nodes compute, a cycle), naming the nodes.
std::string sort_nodes(std::vector<FlatNode>& nodes, const std::function<bool(const std::string&)>& is_defined);

}  // namespace ulpscope::onnx_model
