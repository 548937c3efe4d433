// Repairs by the words of their kinds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ulpscope/repair.h"

namespace ulpscope {

std::vector<std::string> repair_kinds();
/// Still empty. Nothing where there is no such kind.
std::optional<RepairChange> change_of_kind(const std::string& kind);

/// A kind, or a word of Trial::repairs, as it is spelled now: earlier files have "equalise".
std::string in_current_spelling(std::string word);

}  // namespace ulpscope
