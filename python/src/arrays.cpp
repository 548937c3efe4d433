#include "arrays.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <optional>

#include "core/messages.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

nb::object numpy() { return nb::module_::import_("numpy"); }

// Releases a Python object from whichever thread drops the last handle.
std::shared_ptr<const void> keep_alive(nb::object object) {
  PyObject* pointer = object.release().ptr();
  return {pointer, [](const void* held) {
            nb::gil_scoped_acquire gil;
            Py_DECREF(static_cast<PyObject*>(const_cast<void*>(held)));
          }};
}

bool is_of_ml_dtypes(DataType type) { return type == DataType::kBFloat16 || is_storage_only(type); }

nb::dlpack::dtype storage_of(DataType type) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(type));
  using nb::dlpack::dtype_code;
  dtype_code code = dtype_code::UInt;
  if (type == DataType::kBool)
    code = dtype_code::Bool;
  else if (type == DataType::kFloat16 || type == DataType::kFloat32 || type == DataType::kFloat64)
    code = dtype_code::Float;
  else if (type == DataType::kInt8 || type == DataType::kInt16 || type == DataType::kInt32 || type == DataType::kInt64)
    code = dtype_code::Int;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

/// Nothing for what is no array of numbers that C has, aligned and in order: to_tensor() has more ways.
std::optional<DataType> type_of_format(const char* format, Py_ssize_t bytes) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const auto sized = [&](std::array<DataType, 4> types) -> std::optional<DataType> {
    switch (bytes) {
      case 1:
        return types[0];
      case 2:
        return types[1];
      case 4:
        return types[2];
      case 8:
        return types[3];
      default:
        return std::nullopt;
    }
  };
  using enum DataType;
  if (std::strchr("bhilq", *format) != nullptr) return sized({kInt8, kInt16, kInt32, kInt64});
  if (std::strchr("BHILQ", *format) != nullptr) return sized({kUInt8, kUInt16, kUInt32, kUInt64});
  switch (*format) {
    case 'e':
      return kFloat16;
    case 'f':
      return kFloat32;
    case 'd':
      return kFloat64;
    case '?':
      return kBool;
    default:
      return std::nullopt;
  }
}

/// An ndarray whose bytes can be taken as they are; its attributes take microseconds.
std::optional<Tensor> borrowed(nb::handle value) {
  static PyObject* const ndarray = nb::object(numpy().attr("ndarray")).release().ptr();
  if (reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())) != ndarray) return std::nullopt;
  Py_buffer view;
  if (PyObject_GetBuffer(value.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const auto type = type_of_format(view.format, view.itemsize);
  const Shape shape(view.shape, view.shape + view.ndim);
  void* const data = view.buf;
  const bool aligned =
      view.itemsize > 0 && reinterpret_cast<std::uintptr_t>(data) % static_cast<std::size_t>(view.itemsize) == 0;
  PyBuffer_Release(&view);
  if (!type || !aligned) return std::nullopt;
  return Tensor::borrow(*type, shape, data, keep_alive(nb::borrow(value)));
}

/// `what` says how the value is named, if it has to be.
template <typename What>
Tensor tensor_of(nb::handle value, const What& what) {
  if (auto tensor = borrowed(value)) return std::move(*tensor);
  nb::object array = numpy().attr("require")(value, nb::arg("requirements") = nb::make_tuple("C", "A"));
  const auto dtype = nb::cast<std::string>(array.attr("dtype").attr("name"));
  const auto type = data_type_from_name(dtype);
  const bool native = nb::cast<bool>(array.attr("dtype").attr("isnative"));
  if (!type || size_of(*type) == 0) {
    throw invalid_argument("[python] {}: expected an array of floats, integers or booleans, got dtype {}", what(),
                           dtype);
  }
  if (!native) array = array.attr("astype")(array.attr("dtype").attr("newbyteorder")("="));
  Shape shape;
  for (nb::handle dim : array.attr("shape")) shape.push_back(nb::cast<std::int64_t>(dim));
  auto* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(array.attr("ctypes").attr("data")));
  return Tensor::borrow(*type, std::move(shape), data, keep_alive(std::move(array)));
}

}  // namespace

nb::object dtype_of(DataType type) {
  const std::string name(ml_dtypes_name_of(type));
  if (is_of_ml_dtypes(type)) return numpy().attr("dtype")(nb::module_::import_("ml_dtypes").attr(name.c_str()));
  return numpy().attr("dtype")(name);
}

std::string ValueName::text() const { return fmt::format("{} '{}'", kind, name); }

Tensor to_tensor(nb::handle value, const std::string& what) {
  return tensor_of(value, [&] { return what; });
}
Tensor to_tensor(nb::handle value, const ValueName& what) {
  return tensor_of(value, [&] { return what.text(); });
}

nb::object to_array(Tensor tensor) {
  const DataType type = tensor.type();
  auto* held = new Tensor(std::move(tensor));
  nb::capsule owner(held, [](void* pointer) noexcept { delete static_cast<Tensor*>(pointer); });
  const std::vector<std::size_t> shape(held->shape().begin(), held->shape().end());
  static char empty;  // NumPy refuses null, also for arrays without elements
  void* data = held->raw() != nullptr ? held->raw() : &empty;
  nb::ndarray<nb::numpy> array(data, shape.size(), shape.data(), owner, nullptr, storage_of(type));
  nb::object result = nb::cast(array);
  return is_of_ml_dtypes(type) ? result.attr("view")(dtype_of(type)) : result;
}

}  // namespace ulpscope::python
