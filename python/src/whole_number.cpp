#include "whole_number.h"

#include "core/messages.h"
#include "core/parallel.h"

namespace nb = nanobind;

namespace ulpscope::python {

std::int64_t to_whole_number(nb::handle value, std::string_view where) {
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  const long long result = number ? PyLong_AsLongLong(number.ptr()) : -1;
  if (PyErr_Occurred() == nullptr) return result;
  PyErr_Clear();
  throw invalid_argument("{}: expected a whole number of 64 bits, got {}", where, nb::repr(value).c_str());
}

int to_threads(nb::handle value, std::string_view where) {
  return checked_threads(to_whole_number(value, where), where);
}

std::size_t to_bytes(nb::handle value, std::string_view where) {
  const std::int64_t bytes = to_whole_number(value, where);
  if (bytes < 0) throw invalid_argument("{}: expected 0 (no limit) or more bytes, got {}", where, bytes);
  return static_cast<std::size_t>(bytes);
}

}  // namespace ulpscope::python
