// Formats that a GPU does not multiply.
#pragma once

#include <string>
#include <string_view>

#include "graph/layer_form.h"

namespace ulpscope {

/// Throws Error(kInvalidArgument), which begins with `where`, for an enabled format that the target of that name lacks.
/// What was measured knows those that were measured alone, and refuses none.
void refuse_lacking_formats(const std::string& target, PrecisionSet enabled, std::string_view where);

}  // namespace ulpscope
