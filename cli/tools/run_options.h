// The option groups of `ulpscope run`, in the order of its help text.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "args/comparison.h"
#include "args/data_loader.h"
#include "args/inference.h"
#include "args/model.h"
#include "args/network_args.h"
#include "args/runners.h"
#include "args/trt_config.h"
#include "args/trt_network.h"

namespace ulpscope::cli {

struct RunOptions {
  std::optional<std::string> gen_script, answer;
  bool profile = false;
  std::optional<std::string> profile_trace;
  std::map<std::string, float> answer_scales;  ///< int8, of the answer.
  RunnerSelectArgs runners;
  ModelArgs model;
  OnnxLoadArgs onnx;
  OnnxrtArgs onnxrt;
  TrtConfigArgs config;
  TrtNetworkArgs network;
  DataLoaderArgs data;
  InferenceArgs inference;
  ComparisonArgs comparison;

  void declare(OptionTable& table);
  NetworkArgs network_args() const { return {model, onnx, config, network, data}; }
};

}  // namespace ulpscope::cli
