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
  /// TensorRT's names of the types ("HALF") that a group reads and writes; empty where a file does not say.
  struct GroupTypes {
    std::vector<std::string> inputs, outputs;
  };
  std::map<std::string, Precision, std::less<>> precision;  ///< Per layer name.
  std::map<std::string, GroupTypes, std::less<>> groups;    ///< Per name in the file.
};

/// Reads the file's text, in all forms that Polygraphy has written. Throws Error(kInvalidFile) saying what is wrong.
/// Error(kBuild) for a tactic that this builder never offers.
TacticReplay tactics_from_json(const std::string& json);

/// That the groups of a build are those of the replay: warns of groups that the file does not name; throws
/// Error(kBuild) where a group reads or writes other types than its tactic in the file.
void check_replay(const TacticReplay& replay, const Specialization& spec, const Assignment& assignment,
                  const Grouping& grouping);

}  // namespace ulpscope
