// The objectives `bits` and `error`: which format the constant weights of each product take. Groups of layers choose
// among formats by a knapsack over predicted errors; a handful of trials says what predictions do not know.

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "precision/knapsack.h"
#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// Evaluations of the samples of the search; of these, at most so many of one format everywhere that is too large, for
/// what they tell of its errors.
constexpr int kJointTrials = 8, kLargeTrials = 3;
/// Random vectors per sample of a prediction: errors of rows are taken apart.
constexpr int kFormatProjections = 3;
constexpr std::size_t kCurvePoints = 64;

double nominal_bits(Precision format) { return 8 * form_of(format).bytes(form_of(format).weight); }

StoredWeights stored_by(const SearchSpace& space, std::size_t candidate, Precision format) {
  return stored_weights(space.specialization(), space.candidates()[candidate], format, space.low().int8_output);
}

/// Candidates that take one format, and the formats that all of them have.
struct FormatGroup {
  std::vector<std::size_t> members;
  std::vector<Precision> formats;
};

std::vector<FormatGroup> groups_of(SearchSpace& space) {
  std::vector<FormatGroup> groups;
  const std::vector<LayerId>& candidates = space.candidates();
  for (const std::vector<LayerId>& layers : format_groups(space.trials().network(), candidates)) {
    FormatGroup& group = groups.emplace_back();
    for (const LayerId id : layers)
      group.members.push_back(static_cast<std::size_t>(std::ranges::find(candidates, id) - candidates.begin()));
    group.formats = space.formats(group.members.front());
    for (const std::size_t member : group.members)
      std::erase_if(group.formats, [&](Precision each) {
        return std::ranges::find(space.formats(member), each) == space.formats(member).end();
      });
  }
  return groups;
}

/// What samples say that have not been asked yet.
void predict_formats(SearchState& search) {
  SearchSpace& space = search.space();
  FormatEvidence& known = search.formats;
  if (known.samples == search.samples.searched) return;
  std::vector<LayerIn> layers;
  std::vector<std::pair<std::size_t, std::size_t>> places;
  known.squares.resize(space.candidates().size());
  for (std::size_t i = 0; i < space.candidates().size(); ++i) {
    const std::vector<Precision>& formats = space.formats(i);
    known.squares[i].resize(formats.size(), 0.0);
    for (std::size_t level = 0; level < formats.size(); ++level) {
      if (formats[level] == Precision::kFP32) continue;
      layers.push_back({space.candidates()[i], formats[level]});
      places.emplace_back(i, level);
    }
  }
  const auto progress = [&](int done, int all) {
    search.show(Stage::kPredicting, done, all);
    search.check_time();
  };
  PredictorOptions options = search.options.predictor;
  options.projections = kFormatProjections;
  const auto golden = std::span<const TensorMap>(search.samples.golden).subspan(known.samples);
  for (const std::vector<double>& sample :
       predict_squares(space.trials(), space.low(), layers, search.criterion, golden, options, known.samples, progress))
    for (std::size_t w = 0; w < places.size(); ++w) known.squares[places[w].first][places[w].second] += sample[w];
  known.samples = search.samples.searched;
}

/// The groups with their predicted errors, and what trials have shown of these.
class FormatTradeOff {
 public:
  explicit FormatTradeOff(SearchState& search)
      : search_(search), space_(search.space()), groups_(groups_of(space_)), knapsack_(make()) {
    for (std::size_t i = 0; i < space_.candidates().size(); ++i)
      for (const Precision each : space_.formats(i))
        if (!is_float(each)) formats_.set(each);
    for (const Precision each : formats_.members())
      if (formats_.larger_blocks(each)) formats_.set(each, false);
  }

  const Knapsack& knapsack() const noexcept { return knapsack_; }
  Levels levels_of(std::size_t point) const {
    const std::vector<std::size_t> options = knapsack_.options_of(point);
    Levels levels = space_.lowest();
    for (std::size_t g = 0; g < groups_.size(); ++g) take(groups_[g], groups_[g].formats[options[g]], levels);
    return levels;
  }

  /// Those of one format everywhere, from the fewest bits on; a group that lacks it has its next larger one.
  std::vector<std::pair<Precision, Levels>> uniform() const {
    std::vector<std::pair<Precision, Levels>> result;
    for (const Precision format : formats_.members()) {
      Levels levels = space_.lowest();
      for (const FormatGroup& group : groups_) {
        auto found = std::ranges::find(group.formats, format);
        if (found == group.formats.end())
          found = std::ranges::find_if(group.formats,
                                       [&](Precision each) { return nominal_bits(each) >= nominal_bits(format); });
        take(group, found == group.formats.end() ? group.formats.back() : *found, levels);
      }
      result.emplace_back(format, std::move(levels));
    }
    std::ranges::stable_sort(result, {}, [&](const auto& each) { return total_bits(space_, each.second); });
    return result;
  }

  double predicted(const Levels& levels) const {
    double squares = 0;
    for (std::size_t i = 0; i < levels.size(); ++i) squares += square(i, levels[i]);
    return predicted_use(std::sqrt(squares), search_.criterion.sensitivity());
  }
  double predicted(std::size_t point) const {
    return predicted_use(std::sqrt(knapsack_.curve()[point].error), search_.criterion.sensitivity());
  }

  /// Runs it. Of one format everywhere, `format` is the one whose errors it tells of.
  double used(const Levels& levels, std::optional<Precision> format = std::nullopt) {
    const double used = search_.used(levels, TrialKind::kSearch), before = predicted(levels);
    search_.layers.scale.note(before, used);
    const double measured = amplitude_of(used, search_.criterion.sensitivity()),
                 expected = amplitude_of(before, search_.criterion.sensitivity());
    const double factor = measured * measured / (expected * expected);
    if (format && std::isfinite(factor) && factor > 0) factors_[*format] = factor;
    return used;
  }

  /// From now on errors are predicted as formats by themselves fared.
  void correct() {
    if (factors_.size() < 2) return;
    corrected_ = factors_;
    knapsack_ = make();
  }

 private:
  void take(const FormatGroup& group, Precision format, Levels& levels) const {
    for (const std::size_t member : group.members) {
      const std::vector<Precision>& formats = space_.formats(member);
      levels[member] = static_cast<std::uint8_t>(std::ranges::find(formats, format) - formats.begin());
    }
  }

  double square(std::size_t candidate, std::size_t level) const {
    const Precision format = space_.formats(candidate)[level];
    auto found = corrected_.find(format);
    if (const auto larger = form_of(format).stands_in_for; found == corrected_.end() && larger)
      found = corrected_.find(*larger);
    return search_.formats.squares[candidate][level] / static_cast<double>(search_.formats.samples) *
           (found == corrected_.end() ? 1 : found->second);
  }

  Knapsack make() const {
    std::vector<std::vector<KnapsackOption>> groups;
    for (const FormatGroup& group : groups_) {
      auto& options = groups.emplace_back();
      for (const Precision format : group.formats) {
        Levels levels = space_.lowest();
        take(group, format, levels);
        KnapsackOption& option = options.emplace_back();
        std::set<TensorId> seen;
        for (const std::size_t member : group.members) {
          option.error += square(member, levels[member]);
          if (seen.insert(space_.trials().network().layer(space_.candidates()[member]).inputs[1]).second)
            option.bits += stored_by(space_, member, format).bits;
        }
      }
    }
    return Knapsack(groups);
  }

  SearchState& search_;
  SearchSpace& space_;
  const std::vector<FormatGroup> groups_;
  std::map<Precision, double> factors_, corrected_;
  Knapsack knapsack_;
  PrecisionSet formats_;
};

/// For the answer: as trials correct it, and never more error with more bits.
void note_bits_curve(SearchState& search, const FormatTradeOff& trade_off, double weights) {
  const auto& curve = trade_off.knapsack().curve();
  std::vector<Answer::Bits::Point>& points = search.formats.curve;
  points.clear();
  const double first = static_cast<double>(curve.front().bits), last = static_cast<double>(curve.back().bits);
  for (std::size_t k = 0; k <= kCurvePoints; ++k) {
    const double share = static_cast<double>(k) / kCurvePoints;
    const auto bits = k == kCurvePoints ? curve.back().bits
                                        : static_cast<std::int64_t>(std::ceil(first * std::pow(last / first, share)));
    const std::size_t point = *trade_off.knapsack().within(std::max(bits, curve.front().bits));
    const double per_weight = static_cast<double>(curve[point].bits) / weights;
    if (points.empty() || per_weight > points.back().bits)
      points.push_back({per_weight, search.layers.scale.corrected(trade_off.predicted(point))});
  }
  for (std::size_t i = points.size() - 1; i-- > 0;) points[i].used = std::max(points[i].used, points[i + 1].used);
}

double all_weights(const SearchSpace& space) {
  return static_cast<double>(total_weights(space.specialization(), space.options().formats));
}

/// The sensitivities of the answer: in the formats of the fewest bits.
void note_effects(SearchState& search) {
  search.layers.effects.clear();
  search.layers.measured.assign(search.formats.squares.size(), 0);
  for (std::size_t i = 0; i < search.formats.squares.size(); ++i)
    search.layers.effects.push_back(
        {search.space().candidates()[i],
         std::sqrt(search.formats.squares[i][0] / static_cast<double>(search.formats.samples))});
}

/// The choice that holds, or why there is none. False if a sample joined the search, which begins again.
bool is_settled(SearchState& search, const FormatTradeOff& trade_off, const Levels& levels) {
  note_bits_curve(search, trade_off, all_weights(search.space()));
  search.verdict.best = levels;
  if (passes_held_out(search, levels)) {
    search.verdict.proof = Verdict::Proof::kValidated;
    return true;
  }
  if (join_failing_sample(search)) return false;
  search.verdict.failure = Verdict::Failure::kFailsValidation;
  return true;
}

bool try_budget(SearchState& search) {
  SearchSpace& space = search.space();
  predict_formats(search);
  FormatTradeOff trade_off(search);
  search.show(Stage::kSearching);
  const double weights = all_weights(space);
  const auto budget = static_cast<std::int64_t>(std::floor(search.options.bits * weights));
  if (!trade_off.knapsack().within(budget))
    throw_small_budget(search.options.bits, static_cast<double>(trade_off.knapsack().curve().front().bits) / weights);
  std::optional<Levels> best;
  double least = 0;
  const auto consider = [&](const Levels& levels, double used) {
    if (total_bits(space, levels) > budget || (best && !(used < least))) return;
    search.verdict.best = best = levels;
    least = used;
  };
  int trials = 0, large = 0;
  for (const auto& [format, levels] : trade_off.uniform()) {
    if (total_bits(space, levels) > budget && (trials + 2 >= kJointTrials || large++ >= kLargeTrials)) continue;
    consider(levels, trade_off.used(levels, format));
    ++trials;
  }
  for (int turn = 0; turn < 2; ++turn) {
    if (turn > 0) trade_off.correct();
    const Levels levels = trade_off.levels_of(*trade_off.knapsack().within(budget));
    consider(levels, trade_off.used(levels));
  }
  if (search.passes(*best, TrialKind::kSearch)) return is_settled(search, trade_off, *best);
  note_bits_curve(search, trade_off, weights);
  search.verdict.best = best;
  search.verdict.failure = Verdict::Failure::kNotReachable;
  return true;
}

/// The fewest bits of the curve that pass, below those of `holds`, with so many trials.
Levels search_below(SearchState& search, FormatTradeOff& trade_off, Levels holds, int trials) {
  const auto likely = [&](std::size_t point) {
    return search.layers.scale.corrected(trade_off.predicted(point)) <= search.answer.margin;
  };
  std::int64_t fails = -1;  // Bits.
  for (; trials > 0; --trials) {
    const auto& curve = trade_off.knapsack().curve();
    const std::int64_t bits = total_bits(search.space(), holds);
    std::size_t next = fails < 0
                           ? 0
                           : static_cast<std::size_t>(
                                 std::ranges::upper_bound(curve, fails, {}, &Knapsack::Point::bits) - curve.begin());
    while (next < curve.size() && curve[next].bits < bits && !likely(next)) ++next;
    if (next == curve.size() || curve[next].bits >= bits) {
      // Against the prediction, where enough would be gained.
      const std::int64_t middle = fails < 0 ? curve.front().bits : fails + (bits - fails) / 2;
      next = *trade_off.knapsack().within(std::max(middle, curve.front().bits));
      if (curve[next].bits <= fails || curve[next].bits >= bits) break;
    }
    const Levels levels = trade_off.levels_of(next);
    if (const double used = trade_off.used(levels); search.is_within(used, search.answer.margin))
      holds = levels;
    else
      fails = std::max(fails, curve[next].bits);
  }
  return holds;
}

bool try_fewest(SearchState& search) {
  SearchSpace& space = search.space();
  predict_formats(search);
  FormatTradeOff trade_off(search);
  search.show(Stage::kSearching);
  std::optional<Levels> holds;
  int trials = 0;
  for (const auto& [format, levels] : trade_off.uniform()) {
    if (trials + 2 >= kJointTrials) break;
    ++trials;
    const double used = trade_off.used(levels, format);
    if (!search.is_within(used, search.answer.margin)) continue;
    search.verdict.best = holds = levels;
    break;
  }
  // All of them in floats, if nothing else does: that has no error but the golden results' own.
  trade_off.correct();
  if (!holds) {
    const Levels most = trade_off.levels_of(trade_off.knapsack().curve().size() - 1);
    ++trials;
    if (!search.passes(most, TrialKind::kSearch)) {
      note_bits_curve(search, trade_off, all_weights(space));
      search.verdict.best = most;
      search.verdict.failure = Verdict::Failure::kNotReachable;
      return true;
    }
    holds = most;
  }
  return is_settled(search, trade_off, search_below(search, trade_off, *holds, kJointTrials - trials));
}

void until_settled(SearchState& search, bool (*attempt)(SearchState&)) {
  do {
    search.layers.scale.clear();
  } while (!attempt(search));
  note_effects(search);
}

}  // namespace

std::int64_t total_bits(const SearchSpace& space, const Levels& levels) {
  std::int64_t bits = 0;
  std::set<std::pair<TensorId, Precision>> seen;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Precision format = space.precision(i, levels[i]);
    if (seen.emplace(space.specialization().network->layer(space.candidates()[i]).inputs[1], format).second)
      bits += stored_by(space, i, format).bits;
  }
  return bits;
}

void find_fewest_bits(SearchState& search) { until_settled(search, try_fewest); }
void find_least_error(SearchState& search) { until_settled(search, try_budget); }

void note_bits(SearchState& search, const Levels& levels) {
  SearchSpace& space = search.space();
  Answer::Bits& bits = search.answer.bits.emplace();
  bits.budget = search.options.bits;
  bits.has_tolerance = search.options.has_tolerance;
  bits.curve = search.formats.curve;
  std::set<std::pair<TensorId, Precision>> seen;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    const Layer& layer = search.current.network->layer(space.candidates()[i]);
    const Precision format = space.precision(i, levels[i]);
    StoredWeights stored = stored_by(space, i, format);
    // Weights that a layer before reads, too, are there once.
    if (!seen.emplace(layer.inputs[1], format).second) stored.weights = stored.bits = 0;
    bits.layers.push_back({layer.name, format, stored.block, stored.weights, stored.bits});
  }
}

std::int64_t Answer::Bits::weights() const noexcept {
  std::int64_t sum = 0;
  for (const Layer& layer : layers) sum += layer.weights;
  return sum;
}

std::int64_t Answer::Bits::bits() const noexcept {
  std::int64_t sum = 0;
  for (const Layer& layer : layers) sum += layer.bits;
  return sum;
}

double Answer::Bits::per_weight() const noexcept {
  return weights() > 0 ? static_cast<double>(bits()) / static_cast<double>(weights()) : 0;
}

}  // namespace ulpscope
