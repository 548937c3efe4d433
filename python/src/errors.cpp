#include "errors.h"

#include <nanobind/nanobind.h>

#include <string_view>

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

/// Messages quote what files hold, which need not be UTF-8.
nb::object text_of(const std::exception& error) {
  const std::string_view text = error.what();
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::module_ errors = nb::module_::import_("ulpscope.errors");
    raise(errors.attr("Error")(errors.attr("ErrorCode").attr(name_of(error.code())), text_of(error)));
  } catch (const InternalError& error) {
    raise(nb::module_::import_("ulpscope.errors").attr("InternalError")(text_of(error)));
  }
}

}  // namespace

void register_errors() { nb::register_exception_translator(translate); }

}  // namespace ulpscope::python
