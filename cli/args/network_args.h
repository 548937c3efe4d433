// The argument groups that together describe a network to build.
#pragma once

#include "args/data_loader.h"
#include "args/model.h"
#include "args/trt_config.h"
#include "args/trt_network.h"

namespace ulpscope::cli {

/// The argument groups that say which network is built, and for what. They outlive it.
struct NetworkArgs {
  const ModelArgs& model;
  const OnnxLoadArgs& onnx;
  const TrtConfigArgs& config;
  const TrtNetworkArgs& network;
  const DataLoaderArgs& data;
  double calibration_seconds = 0;  ///< No further sample is calibrated with afterwards; 0: no limit.
  /// Activations are measured for scales of weights on --calibration-inputs alone: others are known, or come later.
  bool measures_elsewhere = false;
};

}  // namespace ulpscope::cli
