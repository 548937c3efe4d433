// The reference interpreter, for tests: every operator's reference kernel, one after the other, without an engine.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// Adds `reference_run(model: bytes, inputs: list) -> list` and `operators() -> list[(domain, name, since, rule, has a
/// derivative)]`.
void bind_reference(nanobind::module_& module);

}  // namespace ulpscope::python
