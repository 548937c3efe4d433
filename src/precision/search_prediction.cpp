// What a search knows of its layers before it tries sets of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>

#include "core/messages.h"
#include "engine/quantized_choices.h"
#include "precision/remote_samples.h"
#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// Layers without derivative that are measured one by one; of more, as many groups.
constexpr std::size_t kMeasuredLayers = 32, kMeasuredGroups = 16;

/// fp8 and the formats of 4 bits make errors of like size in many layers, and where few are to stay high, a noisy order
/// of them costs one layer in ten (docs/search_algorithm.md). int8 depends on few wide ranges, and a set that is chosen
/// by its time is no head of the order.
constexpr int kElementProjections = 16;

bool has_elements(const SearchState& search, const Assignment& low) {
  PrecisionSet lowest;
  for (const LayerId id : search.space().candidates()) lowest.set(low.precision[id]);
  lowest.set(Precision::kINT8, false);
  return lowest.has_elements() && !search.rule().may_stay_high;
}

/// What more samples say.
void add_effects(SearchState& search, const std::vector<LayerEffect>& more) {
  std::vector<LayerEffect>& effects = search.layers.effects;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    effects[i].effect = std::max(effects[i].effect, more[i].effect);
    effects[i].overflows |= more[i].overflows;
    effects[i].spread = std::max(effects[i].spread, more[i].spread);
  }
}

/// Where time is short, from as many samples as leave time for trials.
void predict_all(SearchState& search) {
  constexpr double kShare = 0.4;  // Of the limit.
  const SearchTask& options = search.options;
  const std::size_t samples = search.samples.searched;
  const Assignment& low = search.space().low();
  search.layers.measured.assign(search.space().candidates().size(), 0);
  if (options.time_limit <= 0 || samples == 1) {
    search.layers.effects = effects_of(search, low);
    return;
  }
  const double begin = search.watch.elapsed();
  search.layers.effects = effects_of(search, low, 0, 1);
  const double now = search.watch.elapsed(), left = kShare * options.time_limit - now - options.time_spent;
  const auto more = static_cast<std::size_t>(std::clamp(left / (now - begin), 0.0, static_cast<double>(samples - 1)));
  if (more > 0) add_effects(search, effects_of(search, low, 1, more));
  if (more < samples - 1)
    log_info(fmt::format("Little time: the effects of layers are predicted from {} of {} samples", more + 1, samples));
}

/// These candidates in the lowest precision, the others in the highest.
Levels lowered(const SearchState& search, std::span<const std::size_t> candidates) {
  Levels levels = search.space().highest();
  for (const std::size_t i : candidates) levels[i] = 0;
  return levels;
}

/// The squares of its members add to that of a group.
void take_measured(SearchState& search, std::span<const std::size_t> group, double use) {
  const double effect =
      amplitude_of(use, search.criterion.sensitivity()) / std::sqrt(static_cast<double>(group.size()));
  for (const std::size_t i : group) {
    if (!(effect <= search.layers.effects[i].effect)) search.layers.effects[i].effect = effect;
    search.layers.measured[i] = 1;
  }
}

/// What no derivative tells is tried: these layers low, the others high. Where there are many, they are neighbors
/// together at first, and the halves of those that use the most, as long as there are trials left.
void measure_incomplete(SearchState& search) {
  auto& [effects, measured, groups, order, scale] = search.layers;
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; i < effects.size(); ++i)
    if (effects[i].incomplete) layers.push_back(i);
  if (layers.empty()) return;
  search.stage = Stage::kMeasuring;
  // Everything up to the layer that is low is shared with the run in which none is.
  SearchSpace& space = search.space();
  if (space.trials().remote() == nullptr)
    space.trials().run(space.assignment(space.highest()), 0, search.samples.searched, true);
  log_verbose(fmt::format("{} of {} layers have no derivative", layers.size(), effects.size()));
  std::vector<double> uses;
  const auto add = [&](std::span<const std::size_t> group) {
    groups.emplace_back(group.begin(), group.end());
    uses.push_back(search.used(lowered(search, group), TrialKind::kLayer));
  };
  groups.clear();
  const std::size_t size = layers.size() <= kMeasuredLayers ? 1 : (layers.size() + 3) / 4;
  std::vector<std::span<const std::size_t>> portions;
  std::vector<std::pair<Levels, TrialKind>> trials;
  for (std::size_t i = 0; i < layers.size(); i += size) {
    portions.push_back(std::span(layers).subspan(i, std::min(size, layers.size() - i)));
    trials.emplace_back(lowered(search, portions.back()), TrialKind::kLayer);
  }
  search.expect(trials);
  for (const auto& portion : portions) add(portion);
  while (size > 1 && groups.size() < kMeasuredGroups) {
    const auto key = [&](std::size_t g) { return groups[g].size() > 1 ? uses[g] : 0; };
    const auto worst = std::ranges::max(std::views::iota(std::size_t{0}, groups.size()), {}, key);
    if (!(key(worst) > 0)) break;
    const std::vector<std::size_t> group = std::move(groups[worst]);
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(worst));
    uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(worst));
    add(std::span(group).first(group.size() / 2));
    add(std::span(group).subspan(group.size() / 2));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (const std::size_t i : groups[g]) effects[i].effect = 0;
    take_measured(search, groups[g], uses[g]);
  }
}

/// One trial tells for all of them, and more where it fails.
void test_overflows(SearchState& search, std::span<const std::size_t> candidates) {
  const double measured = search.used(lowered(search, candidates), TrialKind::kLayer);
  if (measured <= search.answer.margin) return;
  if (candidates.size() == 1) {
    LayerEffect& effect = search.layers.effects[candidates.front()];
    effect.effect = std::max(effect.effect, amplitude_of(measured, search.criterion.sensitivity()));
    search.layers.measured[candidates.front()] = 1;
    return;
  }
  test_overflows(search, candidates.first(candidates.size() / 2));
  test_overflows(search, candidates.subspan(candidates.size() / 2));
}

/// Overflows that the gradient calls harmless: an infinity that turns into NaN further on, inf - inf, is not.
void test_harmless_overflows(SearchState& search) {
  std::vector<std::size_t> harmless;
  for (std::size_t i = 0; i < search.layers.effects.size(); ++i)
    if (const LayerEffect& e = search.layers.effects[i]; e.overflows && !e.incomplete && std::isfinite(e.effect))
      harmless.push_back(i);
  if (harmless.empty()) return;
  search.stage = Stage::kOverflows;
  test_overflows(search, harmless);
}

/// Where samples lie far apart about a layer, others may lie further out. By the rule that the margin follows, it stays
/// high if so many standard deviations more than on the worst of the samples would use all of the tolerance. A filter
/// that leaves little of a loud signal, ahead of a logarithm, is such a layer: what it leaves depends on the signal.
void mark_far_apart(SearchState& search) {
  const double most = amplitude_of(1, search.criterion.sensitivity());
  std::vector<std::string> names;
  for (LayerEffect& each : search.layers.effects) {
    const double beyond = effect_beyond(each, kSpreadMargin);
    if (!(each.spread > 0) || !std::isfinite(each.effect) || beyond <= most) continue;
    if (each.effect <= most) names.push_back(search.current.network->layer(each.layer).name);
    each.far_apart = true;
  }
  if (!names.empty())
    log_once(LogLevel::kInfo,
             "[search] {} layer(s) stay above the lowest precision although they pass on these samples: what they use "
             "of the tolerance differs so much from sample to sample that others may use all of it; --margin 0.5 "
             "leaves this rule out. They are: {}",
             names.size(), first_names(names));
}

}  // namespace

bool orders_closely(const SearchState& search) { return has_elements(search, search.space().low()); }

std::vector<LayerEffect> effects_of(SearchState& search, const Assignment& low, std::size_t first, std::size_t count) {
  Trials& trials = search.space().trials();
  const std::vector<LayerId>& candidates = search.space().candidates();
  auto golden = std::span<const TensorMap>(search.samples.golden).subspan(first);
  golden = golden.first(std::min(count, golden.size()));
  const auto progress = [&](int done, int all) {
    search.show(Stage::kPredicting, done, all);
    search.check_time();
  };
  PredictorOptions options = search.options.predictor;
  if (has_elements(search, low)) options.projections = std::max(options.projections, kElementProjections);
  if (RemoteSamples* const remote = trials.remote(); remote != nullptr)
    return combine_effects(candidates,
                           remote->effects(low, candidates, options, first, golden.size(), [&] { progress(0, 0); }),
                           options.projections);
  return predict_effects(trials, low, candidates, search.criterion, golden, options, first, progress);
}

void predict(SearchState& search) {
  predict_all(search);
  measure_incomplete(search);
  test_harmless_overflows(search);
  if (search.options.margin <= 0) mark_far_apart(search);
}

void add_sample(SearchState& search, std::size_t sample) {
  SearchSpace& space = search.space();
  add_effects(search, effects_of(search, space.low(), sample));
  for (const auto& group : search.layers.groups) {
    const auto outputs = space.trials().run(space.assignment(lowered(search, group)), sample, 1, false);
    take_measured(search, group, search.judge({&search.samples.golden[sample], 1}, outputs).used);
  }
  order(search);
}

void order(SearchState& search) {
  auto& [effects, measured, groups, order, scale] = search.layers;
  order.resize(effects.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<double> key(effects.size());
  for (std::size_t i = 0; i < effects.size(); ++i) {
    key[i] = search.layers.weight(i);
    if (search.rule().counts_work) key[i] = key[i] * key[i] / search.space().cost(i);
  }
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
}

}  // namespace ulpscope
