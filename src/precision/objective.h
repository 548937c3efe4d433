// What a search wants little of, and how it goes about it: a row per objective.
#pragma once

#include <span>
#include <string_view>

#include "precision/search_space.h"

namespace ulpscope {

struct SearchState;

struct ObjectiveRule {
  Objective objective;
  std::string_view name, wish, help;  ///< For people; `help` stands behind --objective.
  /// Sets are compared by it first, then by raised layers, then by multiply-adds in these. Null: not.
  double (*amount)(SearchSpace& space, const Levels& levels);
  /// Leaves the best set in the verdict, or why there is none (search_phases.h).
  void (*find)(SearchState& search);
  bool counts_work = false;    ///< A layer weighs as its multiply-adds do, and not as any other.
  bool may_stay_high = false;  ///< A set with more layers may have less of it.
  /// Layers choose among formats of constant weights (SearchTask::formats), and `find` is all of the search: what
  /// passes in the lowest formats need not be the best, and sets of other objectives are others' answers.
  bool of_formats = false;
};

/// In the order of the enum.
std::span<const ObjectiveRule> objective_rules() noexcept;
const ObjectiveRule& rule_of(Objective objective) noexcept;

}  // namespace ulpscope
