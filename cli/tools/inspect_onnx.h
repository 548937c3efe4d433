// An ONNX file's description as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "onnx/description.h"

namespace ulpscope::cli {

struct InspectShow {
  bool layers = false, attributes = false, weights = false;
};

std::string onnx_text(const OnnxDescription& model, const InspectShow& show);
/// docs/formats.md has the keys. `show` decides about nodes, attributes and values as for the text.
nlohmann::ordered_json onnx_json(const OnnxDescription& model, const InspectShow& show);

/// The tensors whose values decide the size of another one, computed at run time and with no bound (a Min): limits of
/// Range, pads, sizes of Resize, repeats of Tile, shapes of Expand. Nodes whose outputs have sizes that are known or
/// named by inputs or by earlier nodes do not count.
std::vector<std::string> unbounded_tensors(const OnnxGraph& graph);

}  // namespace ulpscope::cli
