// C++ exceptions as Python exceptions of the same names.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace ulpscope::python {

/// From now on Error arrives as ulpscope.Error (with `.code`), and InternalError as ulpscope.InternalError.
void register_errors();

/// A message of the library, which may quote bytes that are no UTF-8, in the names of Python's arguments.
nanobind::object python_text(std::string_view message);

/// The name of an input or output as it is. Throws Error(kUnsupported) for one that is no UTF-8.
const std::string& readable(const std::string& name);

}  // namespace ulpscope::python
