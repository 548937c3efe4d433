// The network that the engine is built from: outputs, precisions, types, scripts.
#pragma once

#include "args/option_table.h"
#include "graph/network.h"

namespace ulpscope::cli {

/// What --layer-precisions means, in every command that has it.
inline constexpr char kLayerPrecisionsHelp[] =
    "Compute precision of layers, by the name of a layer, else by ONNX node, operator (Softmax) or pattern "
    "(/encoder/*): float32, float16, bfloat16, int8";

struct TrtNetworkArgs {
  std::vector<std::string> outputs, exclude_outputs, layer_precisions, tensor_dtypes, postprocess_scripts;
  /// "NAME" or "NAME:LIMIT"; see clamp_constants in precision/repair.h.
  std::vector<std::string> clamp_constants;
  /// An answer of `precision search` whose repairs are done; see add_scales in tools/calibrate.cpp.
  std::optional<std::string> repairs;
  std::vector<std::string> outputs_by_type;
  std::optional<std::string> save_engine, all_tensor_dtypes;

  /// `strongly_typed` belongs to the configuration here, to the network in Polygraphy's help.
  /// `engine`: with the options that write and run engines.
  void declare(OptionTable& table, bool& strongly_typed, bool engine = true);
  /// The parts of it, each with options that stand together.
  static void declare_parser(OptionTable& table);
  void declare_outputs(OptionTable& table);
  void declare_types(OptionTable& table);
  static void declare_typing(OptionTable& table, bool& strongly_typed);

  /// --layer-precisions. An unknown layer is a warning with near matches. Throws Error for an unknown type.
  void apply_layer_precisions(Network& network) const;
  /// --tensor-dtypes, for network inputs and outputs. Throws Error for an unknown tensor or type.
  void apply_tensor_types(Network& network) const;
  /// --trt-outputs-by-type: instead of the model's outputs, or beside those of --trt-outputs. Throws Error.
  void mark_outputs_by_type(Network& network) const;
};

}  // namespace ulpscope::cli
