// Tensors of other libraries by the protocol of DLPack, without a copy (https://dmlc.github.io/dlpack/latest/).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "arrays.h"
#include "ulpscope/device_tensor.h"

namespace ulpscope::python {

/// A CUstream as DLPack and the driver number it; 0 and 1: CUDA's default stream.
using StreamHandle = std::uintptr_t;
inline void* to_stream(StreamHandle handle) { return reinterpret_cast<void*>(handle == 1 ? 0 : handle); }

/// It is a tensor of DLPack, and no array of NumPy's.
bool is_dlpack(nanobind::handle value);

/// Where a tensor of DLPack is, as DLPack numbers devices.
struct DlPlace {
  int type, number;
  bool is_on_cpu() const;
  bool is_on_cuda() const;
};
/// What it says itself. REQUIRES: it has __dlpack_device__.
DlPlace place_of(nanobind::handle value);

/// The elements of a tensor of DLPack, where they are. On a CUDA device, its owner makes the stream wait for what they
/// still take. `place`: where it is. Throws Error(kInvalidArgument) for a type or device that tensors do
/// not have, for elements that are not row-major without gaps, and where its owner refuses. `is_read`: it is, and not
/// written; then its class may give it without Python (DLPack 1.3, DLPackExchangeAPI).
DeviceTensor from_dlpack(nanobind::handle value, DlPlace place, StreamHandle stream, const ValueName& what,
                         bool is_read);

/// A capsule "dltensor" that keeps the tensor. Throws nanobind::buffer_error for types that DLPack has not.
nanobind::object to_dlpack(const DeviceTensor& tensor);
/// (type, number) of DLPack.
nanobind::tuple dlpack_device_of(const DeviceTensor& tensor);

}  // namespace ulpscope::python
