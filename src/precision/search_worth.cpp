// Whether the repairs of an answer are of use to it: what it needs none of goes.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "precision/search_process.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Trials that may be spent on it; what is not looked at by then stays.
constexpr int kMostTrials = 16;

}  // namespace

/// All that change the network together, those of a kind, and halves of these: where the answer is as good without
/// them, they go.
void Search::drop_useless_repairs() {
  if (!best_ || repair_words_.empty()) return;
  show("weighing repairs");
  repair_trials_ = 0;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < repairs_.size(); ++i)
    if (changes_network(repairs_[i])) all.push_back(i);
  const double used_with = used(*best_, "search");
  std::map<std::string, std::vector<std::size_t>> kinds;
  for (const std::size_t i : all)
    kinds[repairs_[i].kind.starts_with("equali") ? "equalise" : repairs_[i].kind].push_back(i);
  if (kinds.size() == 1) {
    drop_useless(all, used_with);
    return;
  }
  if (try_without(all, used_with)) return;
  // The last first: their places do not move.
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [kind, group] : kinds) groups.push_back(std::move(group));
  std::ranges::sort(groups, std::greater(), [](const auto& group) { return group.front(); });
  for (const auto& group : groups) drop_useless(group, used_with);
}

/// `group`: places in repairs_, ascending. True if something went.
bool Search::drop_useless(const std::vector<std::size_t>& group, double used_with) {
  if (repair_trials_ >= kMostTrials) return false;
  if (try_without(group, used_with)) return true;
  if (group.size() == 1) return false;
  const auto middle = group.begin() + std::ssize(group) / 2;
  const bool second = drop_useless({middle, group.end()}, used_with);
  const bool first = drop_useless({group.begin(), middle}, used_with);
  return first || second;
}

/// Goes on without these, and says so, if the best set is as good then, on the samples of validation too; else notes
/// what they are worth.
bool Search::try_without(const std::vector<std::size_t>& group, double used_with) {
  std::vector<Repair> rest;
  for (std::size_t i = 0; i < repairs_.size(); ++i)
    if (!std::ranges::binary_search(group, i)) rest.push_back(repairs_[i]);
  RepairedNetwork without;
  try {
    without = with_only(rest);
  } catch (const Error&) {  // Later repairs are repairs of what these made.
    return false;
  }
  ++repair_trials_;
  const Levels levels = best_in(*without.space);
  const std::vector<std::string> words = words_of(rest);
  const double used_without = trial_of(*without.space, words, levels, "repair").judgement.used;
  log_verbose(fmt::format("without {} of {} repair(s) | {:.4g} of the tolerance, {:.4g} with all", group.size(),
                          repair_words_.size(), used_without, used_with));
  const auto holds_out = [&] {
    if (!best_holds_ || validated_ == 0) return true;
    compute_held_out_golden();
    return trial_of(*without.space, words, levels, "hold-out").judgement.passed();
  };
  const bool as_good = used_without <= kRepairNoise * used_with && (used_without <= margin_ || used_with > margin_);
  if (!as_good || !holds_out()) {
    for (const std::size_t i : group) {
      repairs_[i].used_before = used_without;
      repairs_[i].used_after = used_with;
    }
    ++evaluations_;
    trials_.push_back(trial_of(*without.space, words, levels, "repair"));
    return false;
  }
  log_info(fmt::format("[repair] The answer is as good without '{}'{}", repairs_[group.front()].name,
                       group.size() > 1 ? fmt::format(" and {} more", group.size() - 1) : ""));
  go_on_without(std::move(without), std::move(rest));
  used(*best_, "search");
  if (best_holds_) passes_held_out(*best_);
  return true;
}

/// The network of the search after these repairs, of all that there are.
RepairedNetwork Search::with_only(std::span<const Repair> repairs) const {
  return with_repairs(*data_.network, options_.build.scales, {}, repairs);
}

/// The best set, by the names of its layers.
Levels Search::best_in(const SearchSpace& space) const {
  std::map<std::string_view, std::uint8_t> raised;
  for (std::size_t i = 0; i < best_->size(); ++i)
    raised.emplace(network_->layer(space_->candidates()[i]).name, (*best_)[i]);
  Levels levels = space.lowest();
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (const auto found = raised.find(space.specialization().network->layer(space.candidates()[i]).name);
        found != raised.end())
      levels[i] = found->second;
  return levels;
}

/// What is known of layers, and the best set, move to another network with the same layers but for added ones.
void Search::go_on_without(RepairedNetwork repaired, std::vector<Repair> repairs) {
  const Network& next = *repaired.network;
  const std::vector<LayerId>& candidates = repaired.space->candidates();
  const auto id_of = [&](LayerId id) { return next.find_layer(network_->layer(id).name); };
  if (best_) best_ = best_in(*repaired.space);
  std::map<LayerId, std::size_t> places;
  for (std::size_t i = 0; i < candidates.size(); ++i) places.emplace(candidates[i], i);
  std::vector<LayerEffect> effects(effects_.empty() ? 0 : candidates.size());
  std::vector<char> measured(effects.size(), 0);
  std::vector<std::size_t> moved(effects_.size(), candidates.size());
  for (std::size_t i = 0; i < effects.size(); ++i) effects[i].layer = candidates[i];
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    const auto found = places.find(id_of(effects_[i].layer));
    if (found == places.end()) continue;
    moved[i] = found->second;
    effects[found->second] = effects_[i];
    effects[found->second].layer = found->first;
    measured[found->second] = measured_[i];
  }
  for (auto& group : groups_) {
    for (std::size_t& i : group) i = moved[i];
    std::erase(group, candidates.size());
  }
  std::erase_if(groups_, [](const auto& group) { return group.empty(); });
  for (SingularCancellation& each : cancellations_) {
    each.difference = id_of(each.difference);
    each.singular = id_of(each.singular);
    for (LayerId& id : each.layers) id = id_of(id);
    std::erase(each.layers, kNone);
  }
  effects_ = std::move(effects);
  measured_ = std::move(measured);
  repairs_ = std::move(repairs);
  go_on_with(std::move(repaired));
  if (!effects_.empty()) order();
}

/// Without a trial: everything stays in the highest precision.
void Search::forget_repairs() {
  std::vector<Repair> rest = repairs_;
  std::erase_if(rest, changes_network);
  if (rest.size() != repairs_.size()) go_on_without(with_only({}), std::move(rest));
}

}  // namespace ulpscope
