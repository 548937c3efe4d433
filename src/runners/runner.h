// What yields outputs for inputs: our engine, ONNX Runtime, TensorRT.
#pragma once

#include <string>
#include <vector>

#include "compare/data_loader.h"
#include "compare/tensor_map.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// A network input or output as a runner sees it.
using RunnerBinding = InputBinding;

class Runner {
 public:
  virtual ~Runner() = default;

  /// "trt-runner", "onnxrt-runner" or "pluginref-runner"; whoever owns the runners appends "-N<k>-<date>".
  virtual std::string kind() const = 0;
  /// The full name, as results carry it. Empty until it is set.
  const std::string& name() const noexcept { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }

  /// Builds or loads what inference needs. Must be called before everything below; throws Error.
  virtual void activate() = 0;
  /// Frees it. May be activated again.
  virtual void deactivate() = 0;

  /// REQUIRES: active. In the model's order, those with a default last.
  virtual const std::vector<RunnerBinding>& input_bindings() const = 0;
  virtual const std::vector<RunnerBinding>& output_bindings() const = 0;

  /// One inference; inputs are found by name, extra ones are ignored. The outputs in the model's order.
  /// Throws Error(kInvalidArgument) naming an input that is missing or does not fit.
  virtual TensorMap infer(const TensorMap& inputs) = 0;

  /// Seconds that the last inference took, without transfers to and from the runner.
  virtual double last_inference_seconds() const = 0;

 private:
  std::string name_;
};

}  // namespace ulpscope
