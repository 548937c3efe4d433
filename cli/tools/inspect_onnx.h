// An ONNX file's description as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "onnx/description.h"

namespace ulpscope::cli {

struct InspectShow {
  bool layers = false, attributes = false, weights = false;
};

std::string onnx_text(const OnnxDescription& model, const InspectShow& show);
/// docs/formats.md has the keys. `show` decides about nodes, attributes and values as for the text.
nlohmann::ordered_json onnx_json(const OnnxDescription& model, const InspectShow& show);

}  // namespace ulpscope::cli
