// What a search knows of its layers before it tries sets of them.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "precision/search_process.h"

namespace ulpscope {

/// From the samples of the search, from `first` on.
std::vector<LayerEffect> Search::predict(const Assignment& low, std::size_t first) {
  return predict_effects(space_->trials(), low, space_->candidates(), criterion_, std::span(golden_).subspan(first),
                         options_.predictor, first, [&](int done, int all) {
                           show("predicting", done, all);
                           if (options_.time_limit > 0 && elapsed() >= options_.time_limit)
                             throw LimitReached{fmt::format("the time limit of {:g} s", options_.time_limit)};
                         });
}

void Search::predict() {
  effects_ = predict(space_->low());
  measured_.assign(effects_.size(), 0);
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
