// Tensors of other libraries by the protocol of DLPack, without a copy (https://dmlc.github.io/dlpack/latest/).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "ulpscope/device_tensor.h"

namespace ulpscope::python {

/// A CUstream as DLPack and the driver number it; 0 and 1: CUDA's default stream.
using StreamHandle = std::uintptr_t;
inline void* to_stream(StreamHandle handle) { return reinterpret_cast<void*>(handle == 1 ? 0 : handle); }

/// It is a tensor of DLPack, and no array of NumPy's.
bool is_dlpack(nanobind::handle value);

/// The elements of a tensor of DLPack, where they are. On a CUDA device, its owner makes the stream wait for what they
/// still take. `what` names the value in errors. Throws Error(kInvalidArgument) for a type or device that tensors do
/// not have, for elements that are not row-major without gaps, and where its owner refuses.
DeviceTensor from_dlpack(nanobind::handle value, StreamHandle stream, const std::string& what);

/// A capsule "dltensor" that keeps the tensor. Throws nanobind::buffer_error for types that DLPack has not.
nanobind::object to_dlpack(const DeviceTensor& tensor);
/// (type, number) of DLPack.
nanobind::tuple dlpack_device_of(const DeviceTensor& tensor);

}  // namespace ulpscope::python
