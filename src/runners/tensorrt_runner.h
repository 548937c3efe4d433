// A real TensorRT, in the Python worker.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/layer_form.h"
#include "runners/runner.h"
#include "runners/worker.h"

namespace ulpscope {

struct TensorRTOptions {
  PrecisionSet enabled;
  bool strongly_typed = false;
  /// "none", "prefer" or "obey".
  std::string precision_constraints = "none";
  /// Layer name to type name ("float16").
  std::vector<std::pair<std::string, std::string>> layer_precisions;
  /// Per input: its minimum, optimum and maximum shape.
  struct InputProfile {
    std::string input;
    Shape min, opt, max;
  };
  std::vector<InputProfile> profile;
  std::filesystem::path save_engine;
};

/// A real TensorRT (`--trt-backend tensorrt`), through the Python package; `activate` throws Error(kNotFound) with the
/// command that installs it where there is none. Written against the documentation, not run on a GPU.
std::unique_ptr<Runner> make_tensorrt_runner(std::filesystem::path model, TensorRTOptions options,
                                             std::shared_ptr<Worker> worker = nullptr);

}  // namespace ulpscope
