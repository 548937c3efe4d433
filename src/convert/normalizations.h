// BatchNormalization in a typed file: multiplied into convolutions, or with prepared parameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "convert/integer_export.h"
#include "engine/options.h"
#include "engine/specialization.h"
#include "graph/assignment.h"
#include "onnx/export.h"

namespace ulpscope {

/// Per convolution that reads integers: the BatchNormalization that this level of fusion multiplies into its weights.
std::map<LayerId, LayerId> normalizations_in_elements(const Specialization& spec, const Assignment& assignment,
                                                      Fusion fusion);

/// Those of narrow precision that this level of fusion multiplies into the convolution before them go into its
/// parameters (weights of int8 ones into `integers`); others get parameters that the narrow type holds, where theirs
/// are beyond it. Adds to `parameters`, `absorbed` and `epsilons`. Returns a sentence per kind, for the log.
std::vector<std::string> prepare_normalizations(const Specialization& spec, const Assignment& assignment, Fusion fusion,
                                                TypedChanges& changes, IntegerExport& integers);

}  // namespace ulpscope
