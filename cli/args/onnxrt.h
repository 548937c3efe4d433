// ONNX Runtime's session.
#pragma once

#include "args/onnx_load.h"
#include "args/option_table.h"
#include "runners/onnxruntime_runner.h"

namespace ulpscope::cli {

struct OnnxrtArgs {
  std::vector<std::string> providers;
  std::optional<std::string> optimization_level;

  void declare(OptionTable& table);
  OnnxRuntimeOptions options(const OnnxLoadArgs& load, int threads) const;
};

/// True for `mark all` and `*`.
bool marks_all(const std::vector<std::string>& outputs);

}  // namespace ulpscope::cli
