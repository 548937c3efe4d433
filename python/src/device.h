// Runs between tensors of DLPack, for ulpscope/device.py.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// Adds the classes `DeviceTensor` and `BoundRun`, and the functions `run_on_device` and `bind`, which take an
/// `Engine`.
void bind_device(nanobind::module_& module);

}  // namespace ulpscope::python
