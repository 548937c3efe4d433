// What the runners in the Python worker have in common: open, run and close by a handle.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runners/runner.h"
#include "runners/worker.h"

namespace ulpscope {

/// A backend is three methods of the worker, "<backend>_open", "<backend>_run" and "<backend>_close".
class PythonRunner : public Runner {
 public:
  PythonRunner(std::string kind, std::string backend, std::shared_ptr<Worker> worker);
  ~PythonRunner() override;

  std::string kind() const override { return kind_; }
  void activate() override;
  void deactivate() override;
  const std::vector<RunnerBinding>& input_bindings() const override { return inputs_; }
  const std::vector<RunnerBinding>& output_bindings() const override { return outputs_; }
  TensorMap infer(const TensorMap& inputs) override;
  double last_inference_seconds() const override { return seconds_; }

 protected:
  /// The model's, for messages; empty where it came from memory.
  virtual std::string file() const = 0;
  /// The arguments of "<backend>_open".
  virtual Value open_arguments() = 0;
  /// Sees what "<backend>_open" returned.
  virtual void opened(const Value& result) { static_cast<void>(result); }
  std::vector<RunnerBinding>& inputs() noexcept { return inputs_; }

 private:
  /// The inputs as "<backend>_run" takes them.
  Value fed(const TensorMap& inputs) const;

  std::string kind_, backend_;
  std::shared_ptr<Worker> shared_, worker_;
  std::int64_t handle_ = 0;
  std::vector<RunnerBinding> inputs_, outputs_;
  double seconds_ = 0;
};

}  // namespace ulpscope
