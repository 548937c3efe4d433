// Which runners yield outputs.
#pragma once

#include "args/model.h"
#include "args/option_table.h"
#include "runners/onnxruntime_runner.h"

namespace ulpscope::cli {

struct RunnerSelectArgs {
  Ordered runners;  ///< "--trt", "--onnxrt", "--pluginref", in the order typed.

  void declare(OptionTable& table);
};

// ONNX Runtime's session.

struct OnnxrtArgs {
  std::vector<std::string> providers;
  std::optional<std::string> optimization_level;

  void declare(OptionTable& table);
  OnnxRuntimeOptions options(const OnnxLoadArgs& load, int threads) const;
};

/// True for `mark all` and `*`.
bool marks_all(const std::vector<std::string>& outputs);

// Polygraphy's options for TensorFlow: known, so that their abbreviations mean here what they mean there, and refused.

void declare_tensorflow_options(OptionTable& table);

}  // namespace ulpscope::cli
