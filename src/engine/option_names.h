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
/// "fp32", "hopper", "hopper-fast"; likewise.
Accumulation accumulation_from_name(std::string_view name, std::string_view where);
std::string_view name_of(Accumulation accumulation) noexcept;
/// "normalized", "flash"; likewise.
AttentionRule attention_from_name(std::string_view name, std::string_view where);
std::string_view name_of(AttentionRule rule) noexcept;

/// The names of the precisions that are enabled beside fp32.
std::vector<std::string> enabled_precisions(const BuildOptions& build);
/// One of those that `accepts`; else throws Error(kInvalidArgument), which `where` starts.
Precision precision_from_name(std::string_view name, std::string_view where, bool (*accepts)(const LayerForm&));
inline bool is_lower(const LayerForm& form) noexcept { return form.precision != Precision::kFP32; }

}  // namespace ulpscope
