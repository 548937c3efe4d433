// Runs of an engine between fixed tensors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "ulpscope/device_tensor.h"
#include "ulpscope/export.h"

namespace ulpscope {

/// Made by OnnxEngine::bind(). Movable handle; copies share the tensors.
class ULPSCOPE_API BoundRun {
 public:
  /// Reads the inputs, and writes the outputs. `stream` as of OnnxEngine::run_on_device(). On a device, the second run
  /// records a graph, which the later ones launch.
  void run(void* stream = nullptr) const;
  /// The same tensors for all runs.
  std::map<std::string, DeviceTensor> outputs() const;

  struct Impl;
  explicit BoundRun(std::shared_ptr<Impl> impl);

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ulpscope
