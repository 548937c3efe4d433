#include "arrays.h"

#include <fmt/format.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include "ulpscope/error.h"

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

}  // namespace

nb::object dtype_of(DataType type) {
  const std::string name(ml_dtypes_name_of(type));
  if (is_of_ml_dtypes(type)) return numpy().attr("dtype")(nb::module_::import_("ml_dtypes").attr(name.c_str()));
  return numpy().attr("dtype")(name);
}

Tensor to_tensor(nb::handle value, const std::string& what) {
  nb::object array = numpy().attr("require")(value, nb::arg("requirements") = nb::make_tuple("C", "A"));
  const auto dtype = nb::cast<std::string>(array.attr("dtype").attr("name"));
  const auto type = data_type_from_name(dtype);
  const bool native = nb::cast<bool>(array.attr("dtype").attr("isnative"));
  if (!type || size_of(*type) == 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[python] {}: expected an array of floats, integers or booleans, got dtype {}", what, dtype));
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
