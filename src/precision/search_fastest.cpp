// The objective `fastest`: points of the curve of error against time are tried, from where the prediction says that
// they pass; then what is left of the tolerance is spent on single moves.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "precision/search_process.h"
#include "precision/trade_off.h"

namespace ulpscope {
namespace {

/// Trials of points of the curve, and of polished ones. With that of the lowest precisions, at most 12 evaluations.
constexpr int kCurveTrials = 7, kPolishTrials = 3;
/// Of the time: what a trial has to promise to be made against the prediction.
constexpr double kWorthATrial = 0.005;
/// Assignments that are looked at for one of these: single moves from a point, and those that raise a faster one.
constexpr int kPolishMoves = 600, kRaiseMoves = 1000;
/// Of the margin, that a polished set may use by prediction.
constexpr double kPolishShare = 0.95;
/// Where everything may be low, another assignment has to be faster by this: estimates are not better.
constexpr double kWorthwhile = 0.98;

}  // namespace

/// Per candidate and level. What is between the lowest and the highest is predicted by itself.
std::vector<std::vector<double>> Search::squared_effects() {
  std::vector<std::vector<double>> squares(effects_.size(), std::vector<double>(space_->highest_level() + 1u, 0.0));
  for (std::size_t i = 0; i < effects_.size(); ++i) squares[i][0] = effects_[i].effect * effects_[i].effect;
  for (std::uint8_t level = 1; level < space_->highest_level(); ++level) {
    Levels levels = space_->lowest();
    for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = space_->effective_level(i, level);
    const std::vector<LayerEffect> effects = predict(space_->assignment(levels));
    for (std::size_t i = 0; i < effects.size(); ++i)
      // Never worse than below; what no derivative tells is not had.
      squares[i][level] =
          effects[i].incomplete ? squares[i][0] : std::min(squares[i][0], effects[i].effect * effects[i].effect);
  }
  return squares;
}

/// Where everything may be low, casts may still make something else faster. False if that does not pass, or is not
/// tried: then errors have to be weighed.
bool Search::faster_than_lowest(Levels& levels) {
  TradeOff trade_off(*space_, SquaredEffects(levels.size(), [&] {
    std::vector<double> few(space_->highest_level() + 1u, 1.0);
    few.back() = 0;
    return few;
  }()));
  const double any = std::numeric_limits<double>::infinity();
  TradeOffPoint fastest = trade_off.polish(trade_off.curve().front(), any, kPolishMoves);
  const double low = space_->time_us(levels), high = space_->time_us(space_->highest());
  if (!(fastest.time_us < low * (low <= high ? kWorthwhile : 1))) return true;
  levels = std::move(fastest.levels);
  return passes(levels, "search");
}

double Search::predicted_use_of(const TradeOffPoint& point) const {
  return predicted_use(std::sqrt(point.squares), criterion_.sensitivity());
}

/// Tries an assignment, and learns from it how far off its prediction is.
bool Search::point_passes(const TradeOffPoint& point) {
  const double measured = used(point.levels, "search");
  if (measured <= kNear) scale_.note(predicted_use_of(point), measured);
  const bool passed = measured <= margin_;
  if (passed && !best_holds_ && (!best_ || better(point.levels, *best_))) best_ = point.levels;
  return passed;
}

/// The fastest point of the curve that passes, or nothing.
std::optional<TradeOffPoint> Search::search_curve(const std::vector<TradeOffPoint>& curve) {
  const auto likely = [&](const TradeOffPoint& point) { return scale_.corrected(predicted_use_of(point)) <= margin_; };
  const std::ptrdiff_t count = std::ssize(curve);
  std::ptrdiff_t fails = -1, holds = count, step = 1;
  // Known from lowest_suffices.
  if (joined_ == 0 && curve.front().levels == space_->lowest() && !point_passes(curve.front())) fails = 0;
  for (int trial = 0; trial < kCurveTrials && holds - fails > 1; ++trial) {
    std::ptrdiff_t next = fails + 1;
    while (next < holds && !likely(curve[next])) ++next;
    if (next == holds && holds < count) {
      // What is faster is not likely to pass; where much time lies between, a trial tells more.
      if (curve[holds].time_us - curve[fails + 1].time_us < kWorthATrial * curve[holds].time_us) break;
      next = fails + (holds - fails) / 2;
    }
    // After failures in growing steps; the last trial is one that passes in any case.
    if (fails >= 0 && holds == count) next = std::max(next, std::min(count - 1, fails + step));
    if (trial + 1 == kCurveTrials && holds == count) next = count - 1;
    std::vector<std::pair<Levels, const char*>> later;
    if (next > fails + 1) later.emplace_back(curve[next - 1].levels, "search");
    if (next + 1 < holds) later.emplace_back(curve[next + 1].levels, "search");
    later.emplace_back(curve[next].levels, "hold-out");
    expect(later);
    if (point_passes(curve[next])) {
      holds = next;
    } else {
      fails = next;
      step *= 2;
    }
  }
  return holds < count ? std::optional(curve[holds]) : std::nullopt;
}

/// Single moves, as far as the prediction, corrected by what was measured, lets them.
TradeOffPoint Search::polish(TradeOff& trade_off, const std::vector<TradeOffPoint>& curve, TradeOffPoint point) {
  show("polishing");
  double share = kPolishShare;
  for (int trial = 0; trial < kPolishTrials; ++trial) {
    const double amplitude = amplitude_of(scale_.prediction_of(share * margin_), criterion_.sensitivity());
    const double most = amplitude * amplitude;
    TradeOffPoint next = trade_off.polish(point, most, kPolishMoves);
    if (const auto faster = std::ranges::find(curve, point.levels, &TradeOffPoint::levels);
        faster != curve.begin() && faster != curve.end())
      if (TradeOffPoint raised = trade_off.raise(*(faster - 1), most, kRaiseMoves);
          raised.squares <= most && raised.time_us < next.time_us)
        next = std::move(raised);
    if (!(next.time_us < point.time_us * 0.999)) break;
    if (point_passes(next))
      point = std::move(next);
    else
      share *= 0.8;
  }
  return point;
}

void Search::find_fastest() {
  show("weighing error against time");
  scale_.clear();
  space_->raise_biases_if_faster();
  TradeOff trade_off(*space_, squared_effects());
  const std::vector<TradeOffPoint> curve = trade_off.curve();
  show("searching");
  std::optional<TradeOffPoint> found = search_curve(curve);
  if (!found) {
    if (space_->raise_biases()) return find_fastest();
    unreachable_ = true;
    return;
  }
  found = polish(trade_off, curve, std::move(*found));
  note_curve(curve);
  best_ = found->levels;
  // Slower points until the held-out samples pass, too; the last one is everything in the highest precision.
  auto next = std::ranges::find_if(curve, [&](const TradeOffPoint& p) { return p.squares < found->squares; });
  while (!passes_held_out(*best_)) {
    if (join_failing_sample()) return find_fastest();
    if (next == curve.end()) {
      fails_held_out_ = true;
      return;
    }
    // At least half of what is left of the error goes each time.
    const double most = found->squares / 2;
    while (next + 1 != curve.end() && next->squares > most) ++next;
    found = *next++;
    if (point_passes(*found)) best_ = found->levels;
  }
  best_holds_ = true;
}

}  // namespace ulpscope
