// Why a choice of precisions lowers no layer.
#pragma once

#include <string>

#include "engine/specialization.h"

namespace ulpscope {

/// The end of "expected layers to lower, got none": what the float layers of the model are instead.
std::string why_nothing_is_lowered(const Specialization& spec);

}  // namespace ulpscope
