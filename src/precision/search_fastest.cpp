// The objective `fastest`: points of the curve of error against time are tried, from where the prediction says that
// they pass; then what is left of the tolerance is spent on single moves.
#include <algorithm>
#include <cmath>
#include <limits>

#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// Trials of points of the curve, of polished ones, and of those without layers that stay for time alone. With that of
/// the lowest precisions, and one more where these pass, at most 14 evaluations.
constexpr int kCurveTrials = 6, kPolishTrials = 4, kIdleTrials = 2;
/// Of the time: what a trial has to promise to be made against the prediction.
constexpr double kWorthATrial = 0.005;
/// By how much a prediction may be off that is right: what uses so many times the margin by one is not tried.
constexpr double kDoubt = 1.5;
/// Assignments that are looked at for one of these: single moves from a point, and those that raise a faster one.
constexpr int kPolishMoves = 600, kRaiseMoves = 1000;
/// Of the margin, that a polished set may use by prediction.
constexpr double kPolishShare = 0.95;
/// What is left of that share after a polished set that did not pass: what it measured corrects the prediction already.
constexpr double kAfterFailure = 0.95;
/// Of the time: what layers have to save that stay higher for time alone. Estimates are not better.
constexpr double kWorthStaying = 0.05;

double predicted_use_of(const SearchState& search, const TradeOffPoint& point) {
  return predicted_use(std::sqrt(point.squares), search.criterion.sensitivity());
}

bool point_passes(SearchState& search, const TradeOffPoint& point) {
  return search.passes(point.levels, predicted_use_of(search, point));
}

/// That a point may have to use this share of the margin, by prediction and what was measured.
double most_squares(const SearchState& search, double share) {
  const double use = search.layers.scale.prediction_of(share * search.answer.margin);
  return std::pow(amplitude_of(use, search.criterion.sensitivity()), 2);
}

/// The fastest point of the curve that passes, or nothing.
std::optional<TradeOffPoint> search_curve(SearchState& search, const std::vector<TradeOffPoint>& curve) {
  const auto corrected = [&](const TradeOffPoint& point) {
    return search.layers.scale.corrected(predicted_use_of(search, point));
  };
  const std::ptrdiff_t count = std::ssize(curve);
  std::ptrdiff_t fails = -1, holds = count, step = 1;
  const auto first_within = [&](double margins) {
    const auto is_within = [&](const TradeOffPoint& point) {
      return corrected(point) <= margins * search.answer.margin;
    };
    return std::find_if(curve.begin() + fails + 1, curve.begin() + holds, is_within) - curve.begin();
  };
  // Known from the trial of the lowest precisions.
  if (search.samples.joined == 0 && curve.front().levels == search.space().lowest() &&
      !point_passes(search, curve.front()))
    fails = 0;
  bool is_right = false;  // The prediction, where it was last tried.
  for (int trial = 0; trial < kCurveTrials && holds - fails > 1; ++trial) {
    std::ptrdiff_t next = first_within(1);
    if (next == holds && holds < count) {
      // What is faster is not likely to pass; where much time lies between, and it may, a trial tells more.
      if (curve[holds].time_us - curve[fails + 1].time_us < kWorthATrial * curve[holds].time_us) break;
      next = fails + (holds - fails) / 2;
      if (is_right) next = std::max(next, first_within(kDoubt));
      if (next == holds) break;
    }
    // After failures in growing steps; the last trial is one that passes in any case.
    if (fails >= 0 && holds == count) next = std::max(next, std::min(count - 1, fails + step));
    if (trial + 1 == kCurveTrials && holds == count) next = count - 1;
    std::vector<std::pair<Levels, TrialKind>> later;
    if (next > fails + 1) later.emplace_back(curve[next - 1].levels, TrialKind::kSearch);
    if (next + 1 < holds) later.emplace_back(curve[next + 1].levels, TrialKind::kSearch);
    later.emplace_back(curve[next].levels, TrialKind::kHoldOut);
    search.expect(later);
    const double predicted = corrected(curve[next]);
    if (point_passes(search, curve[next])) {
      holds = next;
    } else {
      fails = next;
      step *= 2;
    }
    if (predicted > 0) {
      const double used = search.used(curve[next].levels, TrialKind::kSearch);
      is_right = used <= kDoubt * predicted && predicted <= kDoubt * used;
    }
  }
  return holds < count ? std::optional(curve[holds]) : std::nullopt;
}

/// Everything in the highest precision, if that passes, where the curve ends before it: to the prediction, what is
/// raised beyond its end makes no difference, since nothing has a derivative behind a step (QuantizeLinear, ArgMax).
std::optional<TradeOffPoint> beyond_curve(SearchState& search, TradeOff& trade_off,
                                          const std::vector<TradeOffPoint>& curve) {
  TradeOffPoint highest = trade_off.point(search.space().highest());
  if (curve.back().levels == highest.levels || !point_passes(search, highest)) return std::nullopt;
  return highest;
}

/// Single moves, as far as the prediction, corrected by what was measured, lets them: downwards from the point, and
/// upwards from the faster one beside it on the curve.
TradeOffPoint polish(SearchState& search, TradeOff& trade_off, const std::vector<TradeOffPoint>& curve,
                     TradeOffPoint point) {
  search.show(Stage::kPolishing);
  const auto on_curve = std::ranges::find(curve, point.levels, &TradeOffPoint::levels);
  double share = kPolishShare;
  for (int trial = 0; trial < kPolishTrials; ++trial) {
    const double most = most_squares(search, share);
    TradeOffPoint next = trade_off.polish(point, most, kPolishMoves);
    if (on_curve != curve.begin())
      if (TradeOffPoint raised = trade_off.raise(*(on_curve - 1), most, kRaiseMoves);
          raised.squares <= most && raised.time_us < next.time_us)
        next = std::move(raised);
    if (!(next.time_us < point.time_us * 0.999)) break;
    if (point_passes(search, next)) {
      point = std::move(next);
      share = kPolishShare;
    } else {
      share *= kAfterFailure;
    }
  }
  return point;
}

/// Whether a set with more raised layers saves enough of the time to be taken for time alone. Launches, as far as they
/// are estimated, say nothing: they are a few in any engine, and no type changes what one takes.
bool worth_staying(SearchSpace& space, const Levels& more, const Levels& few) {
  const double time = space.time_us(few), saved = time - space.time_us(more);
  if (!(saved >= kWorthStaying * time)) return false;
  const Target& target = space.time_model().target();
  if (target.timed != nullptr && !target.timed->empty()) return true;
  const auto launches = [&](const Levels& levels) {
    return space.time_us(levels) * space.time_model().launch_share(space.assignment(levels));
  };
  return saved - (launches(few) - launches(more)) >= kWorthStaying * time;
}

/// Of layers that together save enough time, those go down that save little of it, the least first: together they lose
/// less than what is worth staying for. Where more casts come so, their launches count, or many would.
TradeOffPoint without_small_savings(SearchSpace& space, TradeOff& trade_off, TradeOffPoint point, double most) {
  const Levels fastest = point.levels;
  const double time = point.time_us;
  const auto casts = [&](const Levels& levels) { return space.time_model().casts(space.assignment(levels)).count; };
  const int least = casts(fastest);
  return trade_off.lower_cheap(std::move(point), most, [&](const TradeOffPoint& next) {
    return next.time_us - time < kWorthStaying * next.time_us ||
           (casts(next.levels) <= least && !worth_staying(space, fastest, next.levels));
  });
}

/// Layers that the tolerance does not ask for go down, as far as the prediction is right, unless together they save
/// enough time. Notes what is enough.
TradeOffPoint without_idle_layers(SearchState& search, TradeOff& trade_off, TradeOffPoint point) {
  search.show(Stage::kLowering);
  double share = kPolishShare;
  for (int trial = 0; trial < kIdleTrials; ++trial, share *= 0.8) {
    const double most = most_squares(search, share);
    TradeOffPoint enough = trade_off.lower(point, most);
    if (enough.levels == point.levels) break;
    if (!point_passes(search, enough)) continue;
    if (!worth_staying(search.space(), point.levels, enough.levels)) return enough;
    if (TradeOffPoint next = without_small_savings(search.space(), trade_off, point, most);
        next.levels != point.levels && point_passes(search, next))
      point = std::move(next);
    search.verdict.enough = std::move(enough.levels);
    break;
  }
  return point;
}

/// False if the search has to begin again: with biases raised, or with a sample that joined it.
bool try_curve(SearchState& search) {
  search.show(Stage::kWeighing);
  search.layers.scale.clear();
  SearchSpace& space = search.space();
  // A product in fp32 and its bias in fp16 are no kernel any more.
  if (space.highest_time_us() < space.time_us(space.highest())) space.raise_biases();
  TradeOff trade_off(space, squared_effects(search));
  const std::vector<TradeOffPoint> curve = trade_off.curve();
  search.show(Stage::kSearching);
  std::optional<TradeOffPoint> found = search_curve(search, curve);
  if (!found) found = beyond_curve(search, trade_off, curve);
  Verdict& verdict = search.verdict;
  if (!found) {
    if (space.raise_biases()) return false;
    verdict.failure = Verdict::Failure::kNotReachable;
    return true;
  }
  found = polish(search, trade_off, curve, std::move(*found));
  verdict.enough.reset();
  found = without_idle_layers(search, trade_off, std::move(*found));
  note_curve(search, curve);
  verdict.best = found->levels;
  // Slower points until the held-out samples pass, too; the last one is everything in the highest precision.
  auto next = std::ranges::find_if(curve, [&](const TradeOffPoint& p) { return p.squares < found->squares; });
  while (!passes_held_out(search, *verdict.best)) {
    if (join_failing_sample(search)) return false;
    if (next == curve.end()) {
      if (std::optional<TradeOffPoint> last = beyond_curve(search, trade_off, curve);
          last && last->levels != *verdict.best) {
        verdict.best = last->levels;
        verdict.enough.reset();
        continue;
      }
      verdict.failure = Verdict::Failure::kFailsValidation;
      return true;
    }
    // At least half of what is left of the error goes each time.
    const double most = found->squares / 2;
    while (next + 1 != curve.end() && next->squares > most) ++next;
    found = *next++;
    if (!point_passes(search, *found)) continue;
    verdict.best = found->levels;
    verdict.enough.reset();
  }
  verdict.proof = Verdict::Proof::kValidated;
  return true;
}

}  // namespace

void find_fastest(SearchState& search) {
  while (!try_curve(search)) {
  }
}

bool faster_than_lowest(SearchState& search, Levels& levels) {
  SearchSpace& space = search.space();
  std::vector<double> few(space.highest_level() + 1u, 1.0);
  few.back() = 0;
  TradeOff trade_off(space, SquaredEffects(levels.size(), few));
  const double any = std::numeric_limits<double>::infinity();
  TradeOffPoint fastest = trade_off.polish(trade_off.curve().front(), any, kPolishMoves);
  if (!worth_staying(space, fastest.levels, levels)) return true;
  fastest = without_small_savings(space, trade_off, std::move(fastest), any);
  search.verdict.enough = std::exchange(levels, std::move(fastest.levels));
  if (search.passes(levels, TrialKind::kSearch)) return true;
  search.verdict.enough.reset();
  return false;
}

SquaredEffects squared_effects(SearchState& search) {
  SearchSpace& space = search.space();
  const std::vector<LayerEffect>& lowest = search.layers.effects;
  SquaredEffects squares(lowest.size(), std::vector<double>(space.highest_level() + 1u, 0.0));
  for (std::size_t i = 0; i < lowest.size(); ++i) squares[i][0] = std::pow(search.layers.weight(i), 2);
  // What is between the lowest and the highest is predicted by itself.
  for (std::uint8_t level = 1; level < space.highest_level(); ++level) {
    Levels levels = space.lowest();
    for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = space.effective_level(i, level);
    const std::vector<LayerEffect> effects = effects_of(search, space.assignment(levels));
    for (std::size_t i = 0; i < effects.size(); ++i)
      // Never worse than below; what no derivative tells is not had.
      squares[i][level] =
          effects[i].incomplete ? squares[i][0] : std::min(squares[i][0], effects[i].effect * effects[i].effect);
  }
  return squares;
}

void note_curve(SearchState& search, const std::vector<TradeOffPoint>& curve) {
  search.answer.curve.clear();
  for (const TradeOffPoint& point : curve)
    search.answer.curve.push_back({point.time_us, search.layers.scale.corrected(predicted_use_of(search, point)),
                                   static_cast<int>(raised_count(point.levels))});
}

}  // namespace ulpscope
