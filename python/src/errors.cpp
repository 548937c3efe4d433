#include "errors.h"

#include "ulpscope/error.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

const char* name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case ErrorCode::kNotFound:
      return "NOT_FOUND";
    case ErrorCode::kUnsupported:
      return "UNSUPPORTED";
    case ErrorCode::kInvalidFile:
      return "INVALID_FILE";
    case ErrorCode::kIo:
      return "IO";
    case ErrorCode::kBuild:
      return "BUILD";
    case ErrorCode::kScript:
      return "SCRIPT";
    case ErrorCode::kInterrupted:
      return "INTERRUPTED";
  }
  return "INVALID_ARGUMENT";
}

void raise(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::module_ errors = nb::module_::import_("ulpscope.errors");
    raise(errors.attr("Error")(errors.attr("ErrorCode").attr(name_of(error.code())), python_text(error.what())));
  } catch (const InternalError& error) {
    raise(nb::module_::import_("ulpscope.errors").attr("InternalError")(python_text(error.what())));
  }
}

}  // namespace

nb::object python_text(std::string_view message) {
  const auto text = nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  return nb::module_::import_("ulpscope.keywords").attr("in_python")(text);
}

void register_errors() { nb::register_exception_translator(translate); }

}  // namespace ulpscope::python
