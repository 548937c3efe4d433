// A run between tensors that callers have, on the CPU or on a device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/engine.h"

namespace ulpscope {

/// The tensors, held and checked once; may be run again and again.
class DeviceRun {
 public:
  /// `inputs` in the order of the engine's: on its device, or on the CPU, from where each run copies them. `outputs` in
  /// theirs, on its device; empty: made for the run, and kept. `stream`: the first that will run it. Throws
  /// Error(kInvalidArgument) naming the tensor that does not fit, or that overlaps with an output.
  DeviceRun(std::shared_ptr<Engine> engine, std::vector<DeviceTensor> inputs, std::vector<DeviceTensor> outputs,
            CallerStream stream);

  /// On a device, between what the stream has and what it gets behind it. The tensors may be freed afterwards, as far
  /// as what uses their memory next is on the stream, too.
  void run(CallerStream stream);
  /// Empty before the first run where shapes are not known sooner.
  const std::vector<DeviceTensor>& outputs() const noexcept { return outputs_; }

 private:
  void check_device(const DeviceTensor& tensor, const std::string& what, bool may_be_on_cpu) const;
  void check_outputs() const;
  void check_overlaps() const;
  void run_on_cpu(CallerStream stream);
  void take(const std::vector<Tensor>& results, CallerStream stream);
  DeviceTensor allocate(DataType type, const Shape& shape, CallerStream stream) const;

  const std::shared_ptr<Engine> engine_;
  DeviceSpace* const space_;
  const std::vector<DeviceTensor> inputs_;
  std::vector<DeviceTensor> outputs_;
  std::shared_ptr<const DevicePlan> plan_;
};

/// A tensor of the CPU as one of a device, and back; they share the bytes. `tensor` of the latter is on the CPU.
DeviceTensor to_device_tensor(Tensor tensor);
Tensor to_cpu_tensor(const DeviceTensor& tensor);
std::size_t bytes_of(const DeviceTensor& tensor);
/// "the CPU", "CUDA device 0".
std::string place_of(const DeviceTensor& tensor);

}  // namespace ulpscope
