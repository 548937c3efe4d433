// NumPy arrays as tensors and back.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>

#include "ulpscope/tensor.h"

namespace ulpscope::python {

/// Names a value in errors: "input 'x'", or the name alone where it has no kind. The text is made where there is an
/// error.
struct ValueName {
  std::string_view kind, name;
  std::string text() const;
};

/// The elements of anything that numpy.asarray takes (bfloat16: ml_dtypes). Shares the bytes of a C-contiguous array
/// and keeps it alive. `what` names the value in errors. Throws Error(kInvalidArgument) for a type that tensors do not
/// have.
Tensor to_tensor(nanobind::handle value, const ValueName& what);

/// A NumPy array of the tensor's type that shares its bytes. bfloat16 needs ml_dtypes.
nanobind::object to_array(Tensor tensor);

/// The NumPy dtype of a type.
nanobind::object dtype_of(DataType type);

/// Name, type and shape of an input or output, as Python has them.
using Spec = std::tuple<std::string, nanobind::object, std::optional<Shape>>;

/// The bytes of a serialized model. REQUIRES: `model` stays.
inline std::span<const std::byte> to_span(const nanobind::bytes& model) {
  return {static_cast<const std::byte*>(model.data()), model.size()};
}

/// As DLPack numbers types; nothing for types that it lacks, or that it packs where tensors have a byte per element.
std::optional<nanobind::dlpack::dtype> dlpack_type_of(DataType type);
std::optional<DataType> type_of(const nanobind::dlpack::dtype& type);

}  // namespace ulpscope::python
