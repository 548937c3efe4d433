// Runs between tensors in the memory of a device, for backends that have one.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "ulpscope/device_tensor.h"

namespace ulpscope {

/// The stream of a caller (CUstream; null: CUDA's default stream). Runs begin when what it has is done, and what it
/// gets behind them begins when they are done.
using CallerStream = void*;

/// Memory of the device that a backend computes on. Thread-safe.
class DeviceSpace {
 public:
  virtual ~DeviceSpace() = default;
  /// As the driver counts devices.
  virtual int number() const = 0;
  /// Throws Error(kInvalidArgument) while the stream is being recorded, which no run can be part of.
  virtual void check(CallerStream stream) const = 0;
  /// For the result of a run on that stream. Throws Error(kUnsupported) where memory is short.
  virtual DeviceTensor allocate(DataType type, const Shape& shape, CallerStream stream) = 0;
  /// Behind what the stream has; returns when `from` may be freed.
  virtual void upload(void* to, const void* from, std::size_t bytes, CallerStream stream) = 0;
  /// The same; returns when the bytes are there.
  virtual void download(void* to, const void* from, std::size_t bytes, CallerStream stream) = 0;
};

/// A schedule whose inputs and outputs are in the memory of the device, row-major, of the declared types. May be run by
/// several threads at once.
class DevicePlan {
 public:
  virtual ~DevicePlan() = default;
  /// Outputs overlap with nothing. Enqueues, and waits only where the CPU takes part.
  virtual void run(std::span<void* const> inputs, std::span<void* const> outputs, CallerStream stream) const = 0;
  /// What the outputs are: no memory.
  virtual std::vector<DeviceTensor> outputs() const = 0;
};

/// A backend whose device has memory of its own that callers may have tensors in.
class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual DeviceSpace& space() const = 0;
  /// As Backend::plan(), for tensors in that memory; null where they have to pass through the CPU's.
  virtual std::shared_ptr<const DevicePlan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule,
                                                 WeightCache& weights, const IdMap<LayerId, GraphFunction>& subgraphs,
                                                 const TacticReplay* replay) const = 0;
};

/// Of the backend of this name; null: the memory of the CPU is all there is.
const DeviceBackend* find_device_backend(std::string_view name);

}  // namespace ulpscope
