// An engine's layers as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/engine.h"
#include "tools/inspect_onnx.h"

namespace ulpscope::cli {

/// Inputs, outputs, estimated time and memory on the target, how many layers have which precision; with
/// `show.layers` each layer with its precision, why, its group, tactic and time; with `show.attributes` the ONNX nodes
/// that it came from; with `show.weights` the elements of its weights.
std::string engine_text(const Engine& engine, const InspectShow& show);
/// docs/formats.md has the keys. All layers, always.
nlohmann::ordered_json engine_json(const Engine& engine);

}  // namespace ulpscope::cli
