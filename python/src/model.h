// Models, criteria and the library's messages.
#pragma once

#include <nanobind/nanobind.h>

namespace ulpscope::python {

/// Adds the class `Model` (made by `from_file` and `from_bytes`), `ModelOptions` and `use_python`.
void bind_model(nanobind::module_& module);

/// Adds the class `Criterion`: CriterionOptions, whose metric may be a callable.
void bind_criterion(nanobind::module_& module);

}  // namespace ulpscope::python
