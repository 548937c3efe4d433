// Layers that a command line names: by layer or node name, operator or pattern.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/network.h"

namespace ulpscope::cli {

/// The layers with float arithmetic that the words name: a layer or an ONNX node, else an operator ("Softmax"), else a
/// pattern of such names. In network order, each once. Throws Error(kInvalidArgument) naming the option, with similar
/// names, for a word that names nothing, and for the name of a layer that has no precision of its own.
std::vector<LayerId> find_layers(const Network& network, const std::vector<std::string>& words,
                                 std::string_view option);

struct PrecisionChoice {
  std::vector<std::string> keep, lower, layer_precisions;
};

/// Types to ask for, per layer: float32 for what is kept; nothing for what is lowered. --lower keeps all others;
/// --layer-precisions names a type. Throws Error(kInvalidArgument) for unknown layers and types, and for a layer that
/// two options disagree on.
std::vector<std::optional<DataType>> requested_types(const Network& network, const PrecisionChoice& choice);

}  // namespace ulpscope::cli
