// What a search knows of its layers before it tries sets of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "precision/search_process.h"
#include "ulpscope/log.h"

namespace ulpscope {

/// From `count` samples of the search, from `first` on, or as many as there are.
std::vector<LayerEffect> Search::predict(const Assignment& low, std::size_t first, std::size_t count) {
  const auto golden = std::span<const TensorMap>(golden_).subspan(first);
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
    log_info(fmt::format("Little time: the effects of layers are predicted from {} of {} samples", more + 1, searched_));
}

/// What no derivative tells is tried: one layer low, the others high.
void Search::measure_incomplete() {
  stage_ = "measuring layers without derivative";
  // Everything up to the layer that is low is shared with the run in which none is.
  if (std::ranges::any_of(effects_, &LayerEffect::incomplete))
    space_->trials().run(space_->assignment(space_->highest()), 0, searched_, true);
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    if (!effects_[i].incomplete) continue;
    Levels levels = space_->highest();
    levels[i] = 0;
    effects_[i].effect = amplitude_of(used(levels, "layer"), criterion_.sensitivity());
    measured_[i] = 1;
  }
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
  Levels levels = space_->highest();
  for (std::size_t i : candidates) levels[i] = 0;
  const double measured = used(levels, "layer");
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
  while (count < order_.size() && !(tail_effect(count) * correction_ <= slack * margin_)) ++count;
  return count;
}

}  // namespace ulpscope
