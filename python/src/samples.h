// Samples, which are dictionaries of arrays, as tensors and back; and verdicts on them.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "ulpscope/answer.h"
#include "ulpscope/model.h"

namespace ulpscope::python {

/// A dictionary of arrays. `what` names it in errors ("sample 3"). Throws as to_tensor.
TensorsByName to_tensors(nanobind::handle mapping, const std::string& what);
/// A list of dictionaries.
std::vector<TensorsByName> to_samples(nanobind::handle list, const std::string& what);
/// A dictionary of arrays that share the bytes.
nanobind::dict to_arrays(const TensorsByName& tensors);

/// A verdict with the keys that answers have in JSON.
nanobind::dict to_dict(const Judgement& judgement);

}  // namespace ulpscope::python
