// What a search has proven besides its answer: the best set of each objective among all that were tried, and the curve.
#include <algorithm>

#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// Sets that are checked for one objective besides the answer.
constexpr int kChecked = 2;

/// The best of those that were tried which passes like the answer, or the answer.
Levels best_for(SearchState& search, const ObjectiveRule& rule, std::vector<Levels>& tried) {
  const Levels& best = *search.verdict.best;
  if (rule.objective == search.options.objective) return best;
  const auto better = [&](const Levels& a, const Levels& b) { return search.better(a, b, rule); };
  const auto holds = [&](const Levels& levels) {
    if (levels == search.space().highest() && search.data.golden.empty()) return true;  // Golden by definition.
    return (search.samples.validated == 0 || search.used(levels, TrialKind::kHoldOut) <= 1) &&
           passes_untouched(search, levels);
  };
  std::ranges::stable_sort(tried, better);
  for (int n = 0; n < std::min(kChecked, static_cast<int>(tried.size())); ++n)
    if (better(tried[n], best) && search.passes(tried[n], TrialKind::kSearch) && holds(tried[n])) return tried[n];
  return best;
}

}  // namespace

void prove_sets(SearchState& search) {
  search.show(Stage::kOtherSets);
  SearchSpace& space = search.space();
  const auto is_of_network = [&](const Trial& trial) {
    return !is_held_out(trial.kind) && trial.joined == search.samples.joined && trial.repairs == search.repairs.words;
  };
  std::vector<Levels> tried;
  for (const Trial& trial : search.journal.trials())
    if (trial.kind != TrialKind::kLayer && is_of_network(trial) && trial.judgement.passed(search.answer.margin))
      if (auto levels = space.levels_of(trial.raised)) tried.push_back(std::move(*levels));
  const Levels highest = space.highest();
  if (space.time_us(highest) < space.time_us(*search.verdict.best)) tried.push_back(highest);
  for (const ObjectiveRule& rule : objective_rules()) {
    const bool own = rule.objective == search.options.objective;
    if (!own && (rule.of_formats || search.rule().of_formats)) continue;
    const RaisedLayers raised = space.names(best_for(search, rule, tried));
    const auto trial = std::ranges::find_if(search.answer.trials, [&](const Trial& each) {
      return each.kind != TrialKind::kRepair && is_of_network(each) && each.raised == raised;
    });
    if (trial != search.answer.trials.end())
      search.answer.sets.push_back({rule.objective, static_cast<int>(trial - search.answer.trials.begin())});
  }
  if (!search.rule().of_formats && search.answer.curve.empty() && !search.layers.effects.empty() &&
      space.highest_level() == 1) {
    search.show(Stage::kWeighing);
    note_curve(search, TradeOff(space, squared_effects(search)).curve());
  }
}

}  // namespace ulpscope
