// The options of the tools that search precisions.
#pragma once

#include "args/comparison.h"
#include "args/network_args.h"
#include "args/python_limit.h"

namespace ulpscope::cli {

/// The option groups of `run` that these tools share, and what they add to them. A tool declares the groups that it
/// takes.
struct PrecisionOptions {
  ModelArgs model;
  OnnxLoadArgs onnx;
  TrtConfigArgs config;
  TrtNetworkArgs network;
  DataLoaderArgs data;
  ComparisonArgs comparison;
  PythonLimitArgs python;
  std::optional<std::string> golden;
  bool cost_model = false;

  /// --golden, --cost-model and --python-time-limit, in the section at hand.
  void declare_search(OptionTable& table);
  NetworkArgs network_args() const { return {model, onnx, config, network, data}; }
};

}  // namespace ulpscope::cli
