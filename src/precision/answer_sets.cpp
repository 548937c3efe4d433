#include <fmt/format.h>

#include <algorithm>

#include "core/messages.h"
#include "ulpscope/answer.h"

namespace ulpscope {
namespace {

bool is_fixed(const KeptLayer& layer) {
  return layer.reason.kind == ReasonKind::kRequested || layer.reason.kind == ReasonKind::kSingular;
}

/// As kept_layer, for a layer of which no more is known.
KeptLayer named_layer(const std::string& name, Precision precision, const std::string& set) {
  KeptLayer row{name, "", {name}, precision};
  row.reason.kind = ReasonKind::kMeasured;
  row.reason.text = "in " + set;
  return row;
}

/// `set` says which one it is ("the fastest set that was proven").
AnswerFile with_layers_of(AnswerFile file, const Trial& trial, const std::string& set) {
  Answer& answer = file.answer;
  std::vector<KeptLayer> kept;
  for (const auto& [name, high] : trial.raised.layers()) {
    const auto old = std::ranges::find(answer.kept, name, &KeptLayer::name);
    kept.push_back(old != answer.kept.end() ? *old : named_layer(name, high, set));
    kept.back().precision = high;
  }
  for (const KeptLayer& layer : answer.kept)
    if (is_fixed(layer)) kept.push_back(layer);
  if (std::ranges::equal(kept, answer.kept, {}, &KeptLayer::name, &KeptLayer::name)) return file;
  answer.message = fmt::format("{} of {} layers: {}", kept.size(), answer.candidates, set);
  answer.kept = std::move(kept);
  answer.following.clear();
  answer.bits.reset();
  answer.search = trial.judgement;
  answer.time_us = trial.time_us;
  answer.casts.reset();
  answer.cost_share = trial.cost_share;
  if (answer.held_out) answer.held_out.reset();
  for (const Trial& each : answer.trials)
    if (is_held_out(each.kind) && each.raised == trial.raised && each.repairs == trial.repairs &&
        each.joined == trial.joined && (!answer.held_out || each.judgement.used > answer.held_out->used))
      answer.held_out = each.judgement;
  answer.held_out_passed = answer.held_out ? answer.held_out_samples : 0;
  return file;
}

}  // namespace

AnswerFile with_set(AnswerFile file, Objective objective) {
  const Answer& answer = file.answer;
  const auto found = std::ranges::find(answer.sets, objective, &Answer::ProvenSet::objective);
  if (found == answer.sets.end())
    throw invalid_argument(
        "[answer] '{}': expected a set that was proven to be the {} one, got none; try `precision search --objective "
        "{}`",
        file.path.string(), name_of(objective), name_of(objective));
  const Trial trial = answer.trials[static_cast<std::size_t>(found->trial)];
  file.set_options = {"--objective", std::string(name_of(objective))};
  file.answer.objective = objective;
  return with_layers_of(std::move(file), trial, fmt::format("the {} set that was proven", name_of(objective)));
}

AnswerFile with_trial(AnswerFile file, std::size_t trial) {
  const auto& trials = file.answer.trials;
  if (trial >= trials.size())
    throw invalid_argument("[answer] trial: expected a number below {}, got {}", trials.size(), trial);
  if (trials[trial].kind == TrialKind::kRepair)
    throw invalid_argument("[answer] trial {}: it ran with other repairs than the answer has; try one of another kind",
                           trial);
  // What held-out samples say of a set stands beside what those of the search say of it.
  const auto same_set = [&](const Trial& each) {
    return !is_held_out(each.kind) && each.raised == trials[trial].raised;
  };
  auto found = std::ranges::find_if(trials, same_set);
  if (!is_held_out(trials[trial].kind) || found == trials.end())
    found = trials.begin() + static_cast<std::ptrdiff_t>(trial);
  const Trial chosen = *found;
  file.set_options = {"--trial", fmt::format("{}", trial)};
  file = with_layers_of(std::move(file), chosen, fmt::format("the set of trial {}", trial));
  Answer& answer = file.answer;
  answer.objective.reset();
  const bool holds = answer.held_out ? answer.held_out->passed() : answer.held_out_samples == 0;
  answer.verdict =
      chosen.judgement.passed(chosen.margin) && holds ? Answer::Verdict::kFound : Answer::Verdict::kUnverified;
  return file;
}

std::filesystem::path cache_beside(std::filesystem::path answer_path) {
  return answer_path.replace_extension(".calibration.cache");
}

AnswerFile moved_to(AnswerFile file, const std::filesystem::path& path) {
  if (file.calibration_cache == cache_beside(file.path).string()) file.calibration_cache = cache_beside(path).string();
  file.path = path;
  file.set_options.clear();
  return file;
}

}  // namespace ulpscope
