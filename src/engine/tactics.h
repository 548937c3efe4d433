// Tactic replay files in Polygraphy's JSON: the choices of one build, to be made again by another.
#pragma once

#include <map>
#include <string>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// One entry per group, under the group's name.
std::string tactics_to_json(const Specialization& spec, const Assignment& assignment, const Grouping& grouping);

/// What a replay file asks of each layer.
struct TacticReplay {
  std::map<std::string, Precision, std::less<>> precision;  ///< Per layer name.
  std::map<std::string, bool, std::less<>> groups;          ///< Names in the file.
};

/// Reads the file's text, in all forms that Polygraphy has written. Throws Error(kInvalidFile) saying what is wrong.
TacticReplay tactics_from_json(const std::string& json);

}  // namespace ulpscope
