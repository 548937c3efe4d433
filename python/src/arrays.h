// NumPy arrays as tensors and back.
#pragma once

#include <nanobind/nanobind.h>

#include "ulpscope/tensor.h"

namespace ulpscope::python {

/// The elements of anything that numpy.asarray takes (bfloat16: ml_dtypes). Shares the bytes of a C-contiguous array
/// and keeps it alive. `what` names the value in errors. Throws Error(kInvalidArgument) for a type that tensors do not
/// have.
Tensor to_tensor(nanobind::handle value, const std::string& what);

/// A NumPy array of the tensor's type that shares its bytes. bfloat16 needs ml_dtypes.
nanobind::object to_array(Tensor tensor);

/// The NumPy dtype of a type.
nanobind::object dtype_of(DataType type);

}  // namespace ulpscope::python
