// The engine for ulpscope/engine.py.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// Adds the class `Engine`, with `from_file`, `from_bytes`, `from_answer`, `inputs`, `outputs`, `layers` and `run`.
/// Specifications of tensors are tuples (name, dtype, shape), layers (name, op, precision, reason, nodes).
void bind_engine(nanobind::module_& module);

}  // namespace ulpscope::python
