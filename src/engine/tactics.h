// Tactic replay files in Polygraphy's JSON: the choices of one build, to be made again by another.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/fusion.h"
#include "engine/specialization.h"
#include "graph/assignment.h"

namespace ulpscope {

/// What a backend chose for a step of a plan; backends alone understand the texts.
struct StepTactic {
  LayerId layer = kNone;  ///< The last one that the step computes; kNone: it brings outputs to their place.
  std::string computes;   ///< What, with shapes and types: "product 16x64x64 batch 1 ...".
  std::string algorithm;  ///< Which of its algorithms computes that.
};

/// Those of a plan, in the order of its steps; none where a backend has nothing to choose.
struct PlanTactics {
  std::string device;  ///< Where these algorithms mean something: "NVIDIA H200, cuBLASLt 13.1.0, cuDNN 9.19.0".
  std::vector<StepTactic> steps;
};

/// One entry per group, under the group's name. `backend`: the name of the one that made `tactics`.
std::string tactics_to_json(const Specialization& spec, const Assignment& assignment, const Grouping& grouping,
                            std::string_view backend, const PlanTactics& tactics);

/// What a replay file asks of each layer.
struct TacticReplay {
  struct Step {
    std::string computes, algorithm;  ///< As in StepTactic.
  };
  /// How a tensor lies in memory.
  struct TensorForm {
    std::string type;              ///< TensorRT's name: "HALF".
    std::optional<Shape> strides;  ///< In elements; none where the file does not say.
    bool row_major = true;         ///< Not in vectors of elements, and in no other format.
  };
  struct GroupTactics {
    std::vector<TensorForm> inputs, outputs;  ///< Of a group; empty where a file does not say.
    std::vector<Step> steps;
  };
  std::string backend, device;                              ///< That chose; empty where a file does not say.
  std::map<std::string, Precision, std::less<>> precision;  ///< Per layer name.
  std::map<std::string, GroupTactics, std::less<>> groups;  ///< Per name in the file.
};

/// Reads the file's text, in all forms that Polygraphy has written. Throws Error(kInvalidFile) saying what is wrong.
/// Error(kBuild) for a tactic that this builder never offers.
TacticReplay tactics_from_json(const std::string& json);

/// Throws Error(kBuild) for tactics that another backend chose.
void check_backend(const TacticReplay& replay, std::string_view backend);

/// That the groups of a build are those of the replay: warns of groups that the file does not name; throws
/// Error(kBuild) where a group reads or writes other tensors than its tactic in the file: in number, types or formats,
/// and where all shapes are fixed, in strides.
void check_replay(const TacticReplay& replay, const Specialization& spec, const Assignment& assignment,
                  const Grouping& grouping);

}  // namespace ulpscope
