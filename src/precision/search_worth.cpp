// Whether the repairs of an answer are of use to it: what it needs none of goes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/counted.h"
#include "precision/repair.h"
#include "precision/search_phases.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Trials that may be spent on it; what is not looked at by then stays.
constexpr int kMostTrials = 16;

/// The network of the search after these repairs, of all that there are.
RepairedNetwork with_only(const SearchState& search, std::span<const Repair> repairs) {
  return with_repairs(search, {search.data.network, search.options.build.scales, {}, nullptr}, repairs);
}

/// A set in another space, by the names of its layers.
Levels levels_in(const SearchState& search, const Levels& best, const SearchSpace& space) {
  std::map<std::string_view, std::uint8_t> raised;
  for (std::size_t i = 0; i < best.size(); ++i)
    raised.emplace(search.current.network->layer(search.space().candidates()[i]).name, best[i]);
  Levels levels = space.lowest();
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (const auto found = raised.find(space.specialization().network->layer(space.candidates()[i]).name);
        found != raised.end())
      levels[i] = found->second;
  return levels;
}

Levels best_in(const SearchState& search, const SearchSpace& space) {
  return levels_in(search, *search.verdict.best, space);
}

/// What is known of layers, and the best set, move to another network with the same layers but for added ones.
void go_on_without(SearchState& search, RepairedNetwork repaired, std::vector<Repair> repairs) {
  const Network& next = *repaired.network;
  const std::vector<LayerId>& candidates = repaired.space->candidates();
  const auto id_of = [&](LayerId id) { return next.find_layer(search.current.network->layer(id).name); };
  for (std::optional<Levels>* set : {&search.verdict.best, &search.verdict.enough})
    if (*set) *set = levels_in(search, **set, *repaired.space);
  LayerEvidence& layers = search.layers;
  std::map<LayerId, std::size_t> places;
  for (std::size_t i = 0; i < candidates.size(); ++i) places.emplace(candidates[i], i);
  std::vector<LayerEffect> effects(layers.effects.empty() ? 0 : candidates.size());
  std::vector<char> measured(effects.size(), 0);
  std::vector<std::size_t> moved(layers.effects.size(), candidates.size());
  for (std::size_t i = 0; i < effects.size(); ++i) effects[i].layer = candidates[i];
  for (std::size_t i = 0; i < layers.effects.size(); ++i) {
    const auto found = places.find(id_of(layers.effects[i].layer));
    if (found == places.end()) continue;
    moved[i] = found->second;
    effects[found->second] = layers.effects[i];
    effects[found->second].layer = found->first;
    measured[found->second] = layers.measured[i];
  }
  for (auto& group : layers.groups) {
    for (std::size_t& i : group) i = moved[i];
    std::erase(group, candidates.size());
  }
  std::erase_if(layers.groups, [](const auto& group) { return group.empty(); });
  for (SingularCancellation& each : search.repairs.cancellations) {
    each.difference = id_of(each.difference);
    each.singular = id_of(each.singular);
    for (LayerId& id : each.layers) id = id_of(id);
    std::erase(each.layers, kNone);
  }
  layers.effects = std::move(effects);
  layers.measured = std::move(measured);
  search.answer.repairs = std::move(repairs);
  go_on_with(search, std::move(repaired));
  if (!layers.effects.empty()) order(search);
}

/// Goes on without these, and says so, if the best set is as good then, on the samples of validation too; else notes
/// what they are worth.
bool try_without(SearchState& search, const std::vector<std::size_t>& group, double used_with, int& trials) {
  std::vector<Repair>& repairs = search.answer.repairs;
  const Verdict& verdict = search.verdict;
  std::vector<Repair> rest;
  for (std::size_t i = 0; i < repairs.size(); ++i)
    if (!std::ranges::binary_search(group, i)) rest.push_back(repairs[i]);
  RepairedNetwork without;
  try {
    without = with_only(search, rest);
  } catch (const Error&) {  // Later repairs are repairs of what these made.
    return false;
  }
  ++trials;
  const Levels levels = best_in(search, *without.space);
  const std::vector<std::string> words = words_of(rest);
  const double used_without = search.trial_of(*without.space, words, levels, TrialKind::kRepair).judgement.used;
  log_verbose(fmt::format("without {} of {} | {:.4g} of the tolerance, {:.4g} with all", group.size(),
                          counted(std::ssize(search.repairs.words), "repair"), used_without, used_with));
  const auto holds_out = [&] {
    if (!verdict.holds() || search.samples.validated == 0) return true;
    compute_held_out_golden(search);
    return search.trial_of(*without.space, words, levels, TrialKind::kHoldOut).judgement.passed();
  };
  const double margin = search.answer.margin;
  const bool as_good = used_without <= kRepairNoise * used_with && (used_without <= margin || used_with > margin);
  if (!as_good || !holds_out()) {
    for (const std::size_t i : group) {
      repairs[i].used_before = used_without;
      repairs[i].used_after = used_with;
    }
    ++search.answer.evaluations;
    search.answer.trials.push_back(search.trial_of(*without.space, words, levels, TrialKind::kRepair));
    return false;
  }
  log_info(fmt::format("[repair] The answer is as good without '{}'{}", repairs[group.front()].name,
                       group.size() > 1 ? fmt::format(" and {} more", group.size() - 1) : ""));
  go_on_without(search, std::move(without), std::move(rest));
  search.used(*verdict.best, TrialKind::kSearch);
  if (verdict.holds()) passes_held_out(search, *verdict.best);
  return true;
}

/// `group`: places among the repairs, ascending. True if something went.
bool drop_useless(SearchState& search, const std::vector<std::size_t>& group, double used_with, int& trials) {
  if (trials >= kMostTrials) return false;
  if (try_without(search, group, used_with, trials)) return true;
  if (group.size() == 1) return false;
  const auto middle = group.begin() + std::ssize(group) / 2;
  const bool second = drop_useless(search, {middle, group.end()}, used_with, trials);
  const bool first = drop_useless(search, {group.begin(), middle}, used_with, trials);
  return first || second;
}

}  // namespace

/// All that change the network together, those of a kind, and halves of these: where the answer is as good without
/// them, they go.
void drop_useless_repairs(SearchState& search) {
  if (!search.verdict.best || search.repairs.words.empty()) return;
  search.show(Stage::kWeighingRepairs);
  const std::vector<Repair>& repairs = search.answer.repairs;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < repairs.size(); ++i)
    if (changes_network(repairs[i])) all.push_back(i);
  const double used_with = search.used(*search.verdict.best, TrialKind::kSearch);
  std::map<std::size_t, std::vector<std::size_t>> kinds;
  for (const std::size_t i : all) kinds[repairs[i].change.index()].push_back(i);
  int trials = 0;
  if (kinds.size() == 1) {
    drop_useless(search, all, used_with, trials);
    return;
  }
  if (try_without(search, all, used_with, trials)) return;
  // The last first: their places do not move.
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [kind, group] : kinds) groups.push_back(std::move(group));
  std::ranges::sort(groups, std::greater(), [](const auto& group) { return group.front(); });
  for (const auto& group : groups) drop_useless(search, group, used_with, trials);
}

void forget_repairs(SearchState& search) {
  std::vector<Repair> rest = search.answer.repairs;
  std::erase_if(rest, changes_network);
  if (rest.size() != search.answer.repairs.size()) go_on_without(search, with_only(search, {}), std::move(rest));
}

}  // namespace ulpscope
