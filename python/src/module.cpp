// ulpscope._core: bind and convert. Everything else is in the C++ library.
#include <nanobind/nanobind.h>

#include "errors.h"
#include "functions.h"

NB_MODULE(_core, module) {
  using namespace ulpscope::python;
  // What users' globals still hold when Python ends is no leak.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = ULPSCOPE_VERSION;
  register_errors();
  bind_reference(module);
  bind_model(module);
  bind_criterion(module);
  bind_answer(module);
  bind_engine(module);
  bind_device(module);
  bind_samples(module);
  bind_search(module);
  bind_convert(module);
  bind_calibrate(module);
  bind_target(module);
  bind_verify(module);
}
