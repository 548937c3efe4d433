// Codes of errors, as Python says them.
#pragma once

#include <string_view>

#include "ulpscope/error.h"

namespace ulpscope {

/// "invalid_argument", "not_found", ...
std::string_view name_of(ErrorCode code) noexcept;

/// kScript for a name that no code has.
ErrorCode error_code_named(std::string_view name) noexcept;

}  // namespace ulpscope
