#include "arrays.h"

#include <fmt/format.h>
#include <nanobind/stl/string.h>

#include <array>
#include <utility>

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

struct TypeEntry {
  DataType type;
  std::uint8_t code, bits;
};
// kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6, kDLFloat8_... from 7 on.
constexpr std::array kTypes{TypeEntry{DataType::kFloat32, 2, 32},
                            TypeEntry{DataType::kFloat64, 2, 64},
                            TypeEntry{DataType::kFloat16, 2, 16},
                            TypeEntry{DataType::kBFloat16, 4, 16},
                            TypeEntry{DataType::kInt8, 0, 8},
                            TypeEntry{DataType::kUInt8, 1, 8},
                            TypeEntry{DataType::kInt16, 0, 16},
                            TypeEntry{DataType::kUInt16, 1, 16},
                            TypeEntry{DataType::kInt32, 0, 32},
                            TypeEntry{DataType::kUInt32, 1, 32},
                            TypeEntry{DataType::kInt64, 0, 64},
                            TypeEntry{DataType::kUInt64, 1, 64},
                            TypeEntry{DataType::kBool, 6, 8},
                            TypeEntry{DataType::kFloat8E4M3, 10, 8},
                            TypeEntry{DataType::kFloat8E4M3Fnuz, 11, 8},
                            TypeEntry{DataType::kFloat8E5M2, 12, 8},
                            TypeEntry{DataType::kFloat8E5M2Fnuz, 13, 8},
                            TypeEntry{DataType::kFloat8E8M0, 14, 8}};

/// NumPy's own type for the bytes of a type.
nb::dlpack::dtype storage_of(DataType type) {
  if (!is_of_ml_dtypes(type)) return *dlpack_type_of(type);
  return {1, static_cast<std::uint8_t>(8 * size_of(type)), 1};
}

/// Nothing for what is no array of numbers that C has, aligned and in order: to_tensor() has more ways.
std::optional<DataType> type_of_format(const char* format, Py_ssize_t bytes) {
  if (format == nullptr || format[0] == '\0' || format[1] != '\0') return std::nullopt;
  constexpr std::array<std::pair<std::string_view, std::uint8_t>, 4> kCodes{
      {{"bhilq", 0}, {"BHILQ", 1}, {"efd", 2}, {"?", 6}}};
  for (const auto& [letters, code] : kCodes)
    if (letters.find(*format) != std::string_view::npos)
      return type_of({code, static_cast<std::uint8_t>(8 * bytes), 1});
  return std::nullopt;
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

}  // namespace

std::optional<nb::dlpack::dtype> dlpack_type_of(DataType type) {
  for (const TypeEntry& entry : kTypes)
    if (entry.type == type) return nb::dlpack::dtype{entry.code, entry.bits, 1};
  return std::nullopt;
}

std::optional<DataType> type_of(const nb::dlpack::dtype& type) {
  for (const TypeEntry& entry : kTypes)
    if (type.lanes == 1 && entry.code == type.code && entry.bits == type.bits) return entry.type;
  return std::nullopt;
}

nb::object dtype_of(DataType type) {
  const std::string name(ml_dtypes_name_of(type));
  if (is_of_ml_dtypes(type)) return numpy().attr("dtype")(nb::module_::import_("ml_dtypes").attr(name.c_str()));
  return numpy().attr("dtype")(name);
}

std::string ValueName::text() const { return kind.empty() ? std::string(name) : fmt::format("{} '{}'", kind, name); }

Tensor to_tensor(nb::handle value, const ValueName& what) {
  if (auto tensor = borrowed(value)) return std::move(*tensor);
  nb::object array = numpy().attr("require")(value, nb::arg("requirements") = nb::make_tuple("C", "A"));
  const auto dtype = nb::cast<std::string>(array.attr("dtype").attr("name"));
  const auto type = data_type_from_name(dtype);
  const bool native = nb::cast<bool>(array.attr("dtype").attr("isnative"));
  if (!type || size_of(*type) == 0) {
    throw invalid_argument("[python] {}: expected an array of floats, integers or booleans, got dtype {}", what.text(),
                           dtype);
  }
  if (!native) array = array.attr("astype")(array.attr("dtype").attr("newbyteorder")("="));
  Shape shape;
  for (nb::handle dim : array.attr("shape")) shape.push_back(nb::cast<std::int64_t>(dim));
  auto* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(array.attr("ctypes").attr("data")));
  return Tensor::borrow(*type, std::move(shape), data, keep_alive(std::move(array)));
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
