#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "precision/search.h"
#include "ulpscope/error.h"

namespace ulpscope {
namespace {

constexpr char kLayerOption[] = "--layer-precisions";

bool is_fixed(const KeptLayer& layer) {
  return layer.reason.kind == ReasonKind::kRequested || layer.reason.kind == ReasonKind::kSingular;
}

/// As kept_layer, for a layer of which no more is known.
KeptLayer named_layer(const std::string& name, Precision precision, Objective objective) {
  KeptLayer row{name, "", {name}, precision};
  row.reason.kind = ReasonKind::kMeasured;
  row.reason.text = fmt::format("in the {} set that was proven", name_of(objective));
  return row;
}

/// The words that run the network, with other layers for those that the answer kept.
void replace_layers(std::vector<std::string>& words, const std::set<std::string>& before,
                    const std::vector<KeptLayer>& kept) {
  const auto option = std::ranges::find(words, kLayerOption);
  std::vector<std::string> layers;
  for (const KeptLayer& layer : kept)
    layers.push_back(fmt::format("{}:{}", layer.name, name_of(storage_of(layer.precision))));
  auto place = option - words.begin();
  if (option != words.end()) {
    const auto end =
        std::find_if(option + 1, words.end(), [](const std::string& word) { return word.starts_with("--"); });
    for (auto word = option + 1; word != end; ++word)
      if (!before.contains(word->substr(0, word->rfind(':')))) layers.push_back(*word);
    words.erase(option, end);
  }
  if (layers.empty()) return;
  layers.insert(layers.begin(), kLayerOption);
  words.insert(words.begin() + place, layers.begin(), layers.end());
}

}  // namespace

AnswerFile with_set(AnswerFile file, Objective objective) {
  Answer& answer = file.answer;
  const auto found = std::ranges::find(answer.sets, objective, &Answer::ProvenSet::objective);
  if (found == answer.sets.end())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("[answer] '{}': expected a set that was proven to be the {} one, got none; try `precision "
                            "search --objective {}`",
                            file.path.string(), name_of(objective), name_of(objective)));
  const Trial& trial = answer.trials[static_cast<std::size_t>(found->trial)];
  std::set<std::string> before;
  for (const KeptLayer& layer : answer.kept) before.insert(layer.name);
  std::vector<KeptLayer> kept;
  for (const auto& [name, high] : trial.raised.layers()) {
    const auto old = std::ranges::find(answer.kept, name, &KeptLayer::name);
    kept.push_back(old != answer.kept.end() ? *old : named_layer(name, high, objective));
    kept.back().precision = high;
  }
  for (const KeptLayer& layer : answer.kept)
    if (is_fixed(layer)) kept.push_back(layer);
  if (std::ranges::equal(kept, answer.kept, {}, &KeptLayer::name, &KeptLayer::name)) return file;
  answer.message = fmt::format("{} of {} layers: the {} set that was proven", kept.size(), answer.candidates,
                               name_of(objective));
  answer.kept = std::move(kept);
  answer.following.clear();
  answer.search = trial.judgement;
  answer.time_us = trial.time_us;
  answer.cost_share = trial.cost_share;
  if (answer.held_out) answer.held_out.reset();
  for (const Trial& each : answer.trials)
    if ((each.kind == "hold-out" || each.kind.starts_with("untouched")) && each.raised == trial.raised &&
        each.joined == trial.joined && (!answer.held_out || each.judgement.used > answer.held_out->used))
      answer.held_out = each.judgement;
  answer.held_out_passed = answer.held_out ? answer.held_out_samples : 0;
  replace_layers(file.run_options, before, answer.kept);
  return file;
}

}  // namespace ulpscope
