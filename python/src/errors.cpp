#include "errors.h"

#include "core/error_names.h"
#include "core/messages.h"
#include "core/utf8.h"

namespace nb = nanobind;

namespace ulpscope::python {
namespace {

void raise(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::module_ errors = nb::module_::import_("ulpscope.errors");
    const std::string_view name = name_of(error.code());
    const nb::object code = errors.attr("ErrorCode")[nb::str(name.data(), name.size()).attr("upper")()];
    raise(errors.attr("Error")(code, python_text(error.what())));
  } catch (const InternalError& error) {
    raise(nb::module_::import_("ulpscope.errors").attr("InternalError")(python_text(error.what())));
  }
}

}  // namespace

nb::object python_text(std::string_view message) {
  const auto text = nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  return nb::module_::import_("ulpscope.keywords").attr("in_python")(text);
}

const std::string& readable(const std::string& name) {
  if (as_utf8(name) == name) return name;
  throw unsupported(
      "[import] tensor '{}': expected a name in UTF-8, which Python's text is; try another name for this input or "
      "output, or the program, which takes it",
      as_utf8(name));
}

void register_errors() { nb::register_exception_translator(translate); }

}  // namespace ulpscope::python
