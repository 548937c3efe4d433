// What a search knows of its layers before it tries sets of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ranges>

#include "precision/search_process.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Layers without derivative that are measured one by one; of more, as many groups.
constexpr std::size_t kMeasuredLayers = 32, kMeasuredGroups = 16;

}  // namespace

/// From `count` samples of the search, from `first` on, or as many as there are.
std::vector<LayerEffect> Search::predict(const Assignment& low, std::size_t first, std::size_t count) {
  const auto golden = std::span<const TensorMap>(golden_).subspan(first);
  if (RemoteSamples* const remote = space_->trials().remote(); remote != nullptr)
    return combine_effects(space_->candidates(), remote->effects(low, space_->candidates(), options_.predictor, first,
                                                                 std::min(count, golden.size()), [&] {
                                                                   show("predicting");
                                                                   check_time();
                                                                 }));
  return predict_effects(space_->trials(), low, space_->candidates(), criterion_,
                         golden.first(std::min(count, golden.size())), options_.predictor, first,
                         [&](int done, int all) {
                           show("predicting", done, all);
                           check_time();
                         });
}

/// What more samples say.
void Search::add_effects(const std::vector<LayerEffect>& more) {
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    effects_[i].effect = std::max(effects_[i].effect, more[i].effect);
    effects_[i].overflows |= more[i].overflows;
  }
}

/// Where time is short, from as many samples as leave time for trials.
void Search::predict() {
  constexpr double kShare = 0.4;  // Of the limit.
  measured_.assign(space_->candidates().size(), 0);
  if (options_.time_limit <= 0 || searched_ == 1) {
    effects_ = predict(space_->low());
    return;
  }
  const double begin = elapsed();
  effects_ = predict(space_->low(), 0, 1);
  const double left = kShare * options_.time_limit - elapsed() - options_.time_spent, each = elapsed() - begin;
  const auto more = static_cast<std::size_t>(std::clamp(left / each, 0.0, static_cast<double>(searched_ - 1)));
  if (more > 0) add_effects(predict(space_->low(), 1, more));
  if (more < searched_ - 1)
    log_info(
        fmt::format("Little time: the effects of layers are predicted from {} of {} samples", more + 1, searched_));
}

/// What no derivative tells is tried: these layers low, the others high. Where there are many, they are neighbors
/// together at first, and the halves of those that use the most, as long as there are trials left.
void Search::measure_incomplete() {
  std::vector<std::size_t> layers;
  for (std::size_t i = 0; i < effects_.size(); ++i)
    if (effects_[i].incomplete) layers.push_back(i);
  if (layers.empty()) return;
  stage_ = "measuring layers without derivative";
  // Everything up to the layer that is low is shared with the run in which none is.
  if (space_->trials().remote() == nullptr)
    space_->trials().run(space_->assignment(space_->highest()), 0, searched_, true);
  log_verbose(fmt::format("{} of {} layers have no derivative", layers.size(), effects_.size()));
  std::vector<double> uses;
  const auto add = [&](auto begin, auto end) {
    groups_.emplace_back(begin, end);
    uses.push_back(used(lowered(groups_.back()), "layer"));
  };
  groups_.clear();
  const std::size_t size = layers.size() <= kMeasuredLayers ? 1 : (layers.size() + 3) / 4;
  std::vector<std::pair<Levels, const char*>> all;
  for (std::size_t i = 0; i < layers.size(); i += size)
    all.emplace_back(lowered(std::span(layers).subspan(i, std::min(size, layers.size() - i))), "layer");
  expect(all);
  for (auto begin = layers.begin(); begin != layers.end();) {
    const auto end = begin + std::min<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(size), layers.end() - begin);
    add(begin, end);
    begin = end;
  }
  while (size > 1 && groups_.size() < kMeasuredGroups) {
    const auto key = [&](std::size_t g) { return groups_[g].size() > 1 ? uses[g] : 0; };
    const auto worst = std::ranges::max(std::views::iota(std::size_t{0}, groups_.size()), {}, key);
    if (!(key(worst) > 0)) break;
    const std::vector<std::size_t> group = std::move(groups_[worst]);
    groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(worst));
    uses.erase(uses.begin() + static_cast<std::ptrdiff_t>(worst));
    add(group.begin(), group.begin() + std::ssize(group) / 2);
    add(group.begin() + std::ssize(group) / 2, group.end());
  }
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (const std::size_t i : groups_[g]) effects_[i].effect = 0;
    take_measured(groups_[g], uses[g]);
  }
}

/// A sample that joined.
void Search::measure_groups(std::size_t sample) {
  for (const auto& group : groups_) {
    const auto outputs = space_->trials().run(space_->assignment(lowered(group)), sample, 1, false);
    take_measured(group, judge({&golden_[sample], 1}, outputs).used);
  }
}

/// The squares of its members add to that of a group.
void Search::take_measured(const std::vector<std::size_t>& group, double use) {
  const double effect = amplitude_of(use, criterion_.sensitivity()) / std::sqrt(static_cast<double>(group.size()));
  for (const std::size_t i : group) {
    if (!(effect <= effects_[i].effect)) effects_[i].effect = effect;
    measured_[i] = 1;
  }
}

/// These candidates in the lowest precision, the others in the highest.
Levels Search::lowered(std::span<const std::size_t> candidates) const {
  Levels levels = space_->highest();
  for (const std::size_t i : candidates) levels[i] = 0;
  return levels;
}

/// Overflows that the gradient calls harmless: an infinity that turns into NaN further on, inf - inf, is not. One trial
/// tells for all of them, and more where it fails.
void Search::test_harmless_overflows() {
  std::vector<std::size_t> harmless;
  for (std::size_t i = 0; i < effects_.size(); ++i)
    if (effects_[i].overflows && !effects_[i].incomplete && std::isfinite(effects_[i].effect)) harmless.push_back(i);
  if (harmless.empty()) return;
  stage_ = "trying overflows that look harmless";
  test_overflows(harmless);
}

void Search::test_overflows(std::span<const std::size_t> candidates) {
  const double measured = used(lowered(candidates), "layer");
  if (measured <= margin_) return;
  if (candidates.size() == 1) {
    LayerEffect& effect = effects_[candidates.front()];
    effect.effect = std::max(effect.effect, amplitude_of(measured, criterion_.sensitivity()));
    measured_[candidates.front()] = 1;
    return;
  }
  test_overflows(candidates.first(candidates.size() / 2));
  test_overflows(candidates.subspan(candidates.size() / 2));
}

void Search::order() {
  order_.resize(effects_.size());
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::vector<double> key(effects_.size());
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    key[i] = effects_[i].effect;
    if (options_.objective == Objective::kCheapest) key[i] = key[i] * key[i] / space_->cost(i);
  }
  std::ranges::stable_sort(order_, [&](std::size_t a, std::size_t b) { return key[a] > key[b]; });
}

double Search::tail_effect(Count count) const {
  double squares = 0;
  for (std::size_t i = order_.size(); i-- > count;) squares += effects_[order_[i]].effect * effects_[order_[i]].effect;
  return predicted_use(std::sqrt(squares), criterion_.sensitivity());
}

/// The fewest layers, from `count` on, that the prediction calls enough, as far as it was right before.
Count Search::predicted_count(Count count, double slack) const {
  while (count < order_.size() && !(scale_.corrected(tail_effect(count)) <= slack * margin_)) ++count;
  return count;
}

}  // namespace ulpscope
