// Settings of an engine under the names of the command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/options.h"

namespace ulpscope {

/// "none", "pointwise", "full". `where` starts the message of Error(kInvalidArgument) for another name.
Fusion fusion_from_name(std::string_view name, std::string_view where);
std::string_view name_of(Fusion fusion) noexcept;

/// The names of the precisions that are enabled beside fp32.
std::vector<std::string> enabled_precisions(const BuildOptions& build);
/// Throws Error(kInvalidArgument), which `where` starts, for a name that is none of them.
void enable_precision(BuildOptions& build, std::string_view name, std::string_view where);

}  // namespace ulpscope
