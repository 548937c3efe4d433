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
  /// False: graph optimizations off.
  bool optimize = true;
  /// Where external data lies, for a model by path; empty: beside the model.
  std::filesystem::path external_data_dir;
  /// Values to hand out instead of the model's outputs, names or patterns; all outputs of all nodes but Constant if
  /// `mark_all`; without `exclude_outputs`. As `with_outputs` in onnx/edit.h.
  std::vector<std::string> outputs;
  bool mark_all = false;
  std::vector<std::string> exclude_outputs;
};

/// `worker` null: a process of its own is started by activate and ended by deactivate (`--use-subprocess`).
std::unique_ptr<Runner> make_onnxruntime_runner(std::filesystem::path model, OnnxRuntimeOptions options,
                                                std::shared_ptr<Worker> worker = nullptr);
/// From a serialized model. Weights in external files are looked for in `external_data_dir` (empty: none).
std::unique_ptr<Runner> make_onnxruntime_runner(std::string model_bytes, std::filesystem::path external_data_dir,
                                                OnnxRuntimeOptions options, std::shared_ptr<Worker> worker = nullptr);

}  // namespace ulpscope
