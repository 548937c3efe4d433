// ulpscope._core: bind and convert. Everything else is in the C++ library.
#include <nanobind/nanobind.h>

#include "engine.h"
#include "errors.h"
#include "reference.h"

NB_MODULE(_core, module) {
  ulpscope::python::register_errors();
  ulpscope::python::bind_reference(module);
  ulpscope::python::bind_engine(module);
}
