// ONNX Runtime, in the Python worker.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runners/runner.h"
#include "runners/worker.h"

namespace ulpscope {

struct OnnxRuntimeOptions {
  /// Parts of provider names in any case ("cpu", "cuda"), tried in this order; an unknown one is an Error that lists
  /// what there is.
  std::vector<std::string> providers{"cpu"};
  /// Threads within an operator; 0: ONNX Runtime's choice.
  int threads = 0;
  /// False: graph optimisations off.
  bool optimize = true;
  /// Values to hand out beside the model's outputs: names; or instead of them, if `replace_outputs`. All outputs of all
  /// nodes but Constant if `mark_all`. `exclude_outputs` are left out in the end. Needs the Python package onnx.
  std::vector<std::string> outputs;
  bool mark_all = false;
  std::vector<std::string> exclude_outputs;
};

/// `worker` null: a process of its own is started by activate and ended by deactivate (`--use-subprocess`).
std::unique_ptr<Runner> make_onnxruntime_runner(std::filesystem::path model, OnnxRuntimeOptions options,
                                                std::shared_ptr<Worker> worker = nullptr);
/// From a serialised model. Weights in external files are looked for in `external_data_dir` (empty: none).
std::unique_ptr<Runner> make_onnxruntime_runner(std::string model_bytes, std::filesystem::path external_data_dir,
                                                OnnxRuntimeOptions options, std::shared_ptr<Worker> worker = nullptr);

}  // namespace ulpscope
