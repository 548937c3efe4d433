// Tensors where a device has them: what runs take and give without a copy.
#pragma once

#include <memory>
#include <optional>

#include "ulpscope/data_type.h"
#include "ulpscope/export.h"
#include "ulpscope/shape.h"
#include "ulpscope/tensor.h"

namespace ulpscope {

/// Keeps the memory of a tensor while a handle is there.
class ULPSCOPE_API DeviceOwner {
 public:
  virtual ~DeviceOwner() = default;
  /// Another stream than that of the run (a CUstream) is to read or write the memory: what it gets from here on begins
  /// when the runs so far are done, and the memory goes to nobody else before the stream is done.
  virtual void used_on([[maybe_unused]] void* stream) {}
};

/// A dense, row-major array in the memory of the CPU or of a CUDA device. A handle, as Tensor is.
struct DeviceTensor {
  DataType type = DataType::kUndefined;
  Shape shape;
  void* data = nullptr;                ///< A CUdeviceptr on a CUDA device. Aligned to 16 bytes there, or it is copied.
  std::optional<int> cuda;             ///< The number of the CUDA device; nothing: the CPU.
  std::shared_ptr<DeviceOwner> owner;  ///< May be null: then the caller keeps the memory as long as it is used.
};

/// Its elements in the memory of the CPU, when what the stream (a CUstream) has is done; shares them if they are there.
/// Throws Error(kInvalidArgument) for another CUDA device than the engine's.
ULPSCOPE_API Tensor to_host(const DeviceTensor& tensor, void* stream = nullptr);

}  // namespace ulpscope
