// Layers that a command line names: by layer or node name, pattern or operator.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/network.h"

namespace ulpscope::cli {

/// Per layer, true if one of `words` means it: the name of a layer or of an ONNX node, an operator ("Softmax"), or a
/// pattern for either. Throws Error(kInvalidArgument) for a word that means none, with similar names.
std::vector<char> choose_layers(const Network& network, const std::string& option,
                                const std::vector<std::string>& words);

struct PrecisionChoice {
  std::vector<std::string> keep, lower, layer_precisions;
};

/// Types to ask for, per layer: `high` for what is kept; nothing for what is lowered. --lower keeps all others;
/// --layer-precisions names a type. Throws Error(kInvalidArgument) for unknown layers and types, and for a layer that
/// two options disagree on.
std::vector<std::optional<DataType>> requested_types(const Network& network, const PrecisionChoice& choice);

}  // namespace ulpscope::cli
