// Samples, which are dictionaries of arrays, as tensors and back.
#pragma once

#include <nanobind/nanobind.h>

#include <map>
#include <string>
#include <vector>

#include "ulpscope/model.h"

namespace ulpscope::python {

/// A dictionary of arrays. `what` names it in errors ("sample 3"). Throws as to_tensor.
TensorsByName to_tensors(nanobind::handle mapping, const std::string& what);
/// A list of dictionaries.
std::vector<TensorsByName> to_samples(nanobind::handle list, const std::string& what);
/// A dictionary of arrays that share the bytes.
nanobind::dict to_arrays(const TensorsByName& tensors);

/// Adds `load_inputs`, `load_outputs` and `generate_inputs`.
void bind_samples(nanobind::module_& module);

}  // namespace ulpscope::python
