// Models in which no layer can run in another type than their file says.
#pragma once

#include <optional>
#include <string>

#include "engine/specialization.h"

namespace ulpscope {

/// The end of a sentence that says that no layer can be lowered: what the float layers of the model are instead.
/// Nothing if one of them computes in float32.
std::optional<std::string> why_types_are_fixed(const Specialization& spec);

}  // namespace ulpscope
