// What a search has proven besides its answer: the best set of each objective among all that were tried, and the curve.
#include <algorithm>
#include <cmath>

#include "precision/search_process.h"
#include "precision/trade_off.h"

namespace ulpscope {

/// Sets that are checked for one objective besides the answer.
constexpr int kChecked = 2;

void Search::prove_sets() {
  show("checking the sets of other objectives");
  std::vector<Levels> tried;
  for (const Trial& trial : journal_.trials())
    if (trial.kind != "layer" && samples_of(trial.kind).first == 0 && trial.joined == joined_ &&
        trial.repairs == repair_words_ && trial.judgement.passed(margin_))
      if (auto levels = space_->levels_of(trial.raised)) tried.push_back(std::move(*levels));
  const Levels highest = space_->highest();
  if (space_->time_us(highest) < space_->time_us(*best_)) tried.push_back(highest);
  for (const Objective objective : {Objective::kFastest, Objective::kSmallest, Objective::kCheapest}) {
    Levels chosen = *best_;
    if (objective != options_.objective) {
      std::ranges::stable_sort(tried, [&](const Levels& a, const Levels& b) { return better(a, b, objective); });
      for (int n = 0; n < std::min(kChecked, static_cast<int>(tried.size())); ++n)
        if (better(tried[n], chosen, objective) && passes(tried[n], "search") &&
            ((tried[n] == highest && data_.golden.empty()) ||  // Golden by definition.
             ((validated_ == 0 || used(tried[n], "hold-out") <= 1) && passes_untouched(tried[n])))) {
          chosen = tried[n];
          break;
        }
    }
    const auto raised = space_->names(chosen);
    for (std::size_t t = 0; t < trials_.size(); ++t)
      if (trials_[t].kind != "repair" && samples_of(trials_[t].kind).first == 0 && trials_[t].joined == joined_ &&
          trials_[t].repairs == repair_words_ && trials_[t].raised == raised) {
        sets_.push_back({objective, static_cast<int>(t)});
        break;
      }
  }
  if (curve_.empty() && !effects_.empty() && space_->highest_level() == 1) {
    show("weighing error against time");
    note_curve(TradeOff(*space_, squared_effects()).curve());
  }
}

void Search::note_curve(const std::vector<TradeOffPoint>& curve) {
  curve_.clear();
  for (const TradeOffPoint& point : curve)
    curve_.push_back(
        {point.time_us, scale_.corrected(predicted_use_of(point)), static_cast<int>(raised_count(point.levels))});
}

}  // namespace ulpscope
