// ulpscope._core: bind and convert. Everything else is in the C++ library.
#include <nanobind/nanobind.h>

#ifdef ULPSCOPE_HAS_ENGINE
#include "engine.h"
#endif
#include "errors.h"
#include "reference.h"

NB_MODULE(_core, module) {
  ulpscope::python::register_errors();
  ulpscope::python::bind_reference(module);
#ifdef ULPSCOPE_HAS_ENGINE
  ulpscope::python::bind_engine(module);
#endif
}
