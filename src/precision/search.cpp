#include "precision/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

#include "engine/assign.h"
#include "engine/cost.h"
#include "precision/explain.h"
#include "precision/repair.h"
#include "precision/search_space.h"
#include "precision/segment_search.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// A limit of the options, or the user, ended the search.
struct LimitReached {
  std::string what;
};

/// How many layers at the head of the order are raised.
using Count = std::size_t;

bool same_bits(const std::vector<TensorMap>& a, const std::vector<TensorMap>& b) {
  const auto same = [](const NamedTensor& x, const NamedTensor& y) {
    return x.tensor.type() == y.tensor.type() && x.tensor.shape() == y.tensor.shape() &&
           (x.tensor.bytes() == 0 || std::memcmp(x.tensor.raw(), y.tensor.raw(), x.tensor.bytes()) == 0);
  };
  return std::ranges::equal(a, b,
                            [&](const TensorMap& x, const TensorMap& y) { return std::ranges::equal(x, y, same); });
}

class Search {
 public:
  Search(const SearchData& data, const Criterion& criterion, const SearchOptions& options, Journal& journal,
         const SearchObserver& observer)
      : data_(data), criterion_(criterion), options_(options), journal_(journal), observer_(observer) {}

  Answer run();

 private:
  using Clock = std::chrono::steady_clock;

  void prepare();
  void repair();
  void repair_constants();
  void equalise();
  void predict();
  void measure_incomplete();
  void doubt_harmless();
  void doubt(std::span<const std::size_t> candidates);
  void check_golden_values(std::span<const TensorMap> golden, const char* what) const;
  void order();
  bool lowest_suffices();
  void find();
  Count predicted_count(Count count, double slack = 1.0) const;
  void extend_for_held_out(Count count);
  void fall_back();
  void adopt(const Levels& levels);
  Levels prefix_bisection(bool reverse);
  Levels segment_search();
  void shrink();
  void lower_rungs();
  void verify_best();
  void finish(Answer& answer);
  std::string sentence(const Answer& answer, const std::string& ended) const;

  /// Of the tolerance, by the worst output and sample. `kind` as in Trial.
  double used(const Levels& levels, const std::string& kind);
  bool passes(const Levels& levels, const std::string& kind);
  bool head_passes(Count count);
  bool passes_held_out(const Levels& levels);
  Levels head(Count count) const;
  bool better(const Levels& a, const Levels& b) const;
  void check_limits(bool limited);
  void show(const std::string& stage, int done = 0, int all = 0);
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  bool has_held_out() const { return !data_.held_out.empty(); }
  double tail_effect(Count count) const;
  int samples_passed(const Judgement& together, std::span<const TensorMap> outputs) const;

  const SearchData& data_;
  const Criterion& criterion_;
  const SearchOptions& options_;
  Journal& journal_;
  const SearchObserver& observer_;
  const Clock::time_point start_ = Clock::now();

  std::shared_ptr<const Network> network_;
  std::unique_ptr<SearchSpace> space_;
  std::vector<TensorMap> golden_, held_out_golden_;
  std::vector<Repair> repairs_;
  std::map<std::string, float> scales_;  ///< int8, with the repairs.
  std::vector<LayerEffect> effects_;     ///< Per candidate.
  std::vector<char> measured_;
  std::vector<std::size_t> order_;  ///< Candidates, the most important first.
  /// Measured over predicted use of the tolerance, from the latest trial of a head of the order.
  double correction_ = 1;
  std::optional<Levels> best_;
  bool best_holds_ = false;  ///< It passes the held-out samples as well.
  bool unreachable_ = false, fails_held_out_ = false;
  std::vector<Trial> trials_;
  std::map<std::pair<bool, std::vector<std::pair<std::string, std::string>>>, double> done_;
  std::int64_t evaluations_ = 0, held_out_evaluations_ = 0;
  std::string stage_;
  double held_out_seconds_ = 0;
};

void Search::show(const std::string& stage, int done, int all) {
  stage_ = stage;
  if (!observer_) return;
  SearchProgress progress;
  progress.stage = stage;
  progress.done = done;
  progress.all = all;
  progress.trials = evaluations_;
  if (best_) progress.best = static_cast<std::int64_t>(raised_count(*best_));
  observer_(progress);
}

/// `limited`: it counts against --max-trials.
void Search::check_limits(bool limited) {
  show(stage_);
  if (options_.time_limit > 0 && elapsed() >= options_.time_limit)
    throw LimitReached{fmt::format("the time limit of {:g} s", options_.time_limit)};
  if (limited && options_.max_trials > 0 && evaluations_ >= options_.max_trials)
    throw LimitReached{
        fmt::format("the limit of {} trial{}", options_.max_trials, options_.max_trials == 1 ? "" : "s")};
}

void Search::prepare() {
  network_ = data_.network;
  scales_ = options_.build.scales;
  show("computing golden outputs");
  std::vector<TensorMap> samples = data_.samples;
  samples.insert(samples.end(), data_.held_out.begin(), data_.held_out.end());
  space_ = std::make_unique<SearchSpace>(network_, options_, samples, data_.weights);
  golden_ = data_.golden;
  held_out_golden_ = data_.held_out_golden;
  Trials& trials = space_->trials();
  const Assignment exact = trials.full_precision();
  if (golden_.empty()) golden_ = trials.run(exact, 0, data_.samples.size(), false);
  check_golden_values(golden_, "");
  const auto typed = std::ranges::count_if(space_->candidates(), [&](LayerId id) {
    return std::ranges::any_of(network_->layer(id).outputs, [&](TensorId output) {
      if (output == kNone) return false;
      const DataType type = trials.specialization()->type(output);
      return type == DataType::kFloat16 || type == DataType::kBFloat16;
    });
  });
  if (typed > 0)
    log_warning(
        fmt::format("[search] the file itself stores the results of {} of {} layers in float16 or bfloat16: so do the "
                    "golden outputs, and no search sees what that costs; try the float32 model",
                    typed, space_->candidates().size()));
}

/// Nothing can be judged against NaN. `what`: ends the message.
void Search::check_golden_values(std::span<const TensorMap> golden, const char* what) const {
  for (std::size_t s = 0; s < golden.size(); ++s)
    for (const NamedTensor& output : golden[s]) {
      if (!criterion_.judges(output.name)) continue;
      const NonFinite found = count_non_finite(output.tensor);
      if (found.nan == 0 && (found.inf == 0 || options_.infinities_equal)) continue;
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("[golden] output '{}', sample {}{}: expected numbers, got {} NaN and {} Inf in {} elements "
                      "of the float32 outputs: nothing can be judged against them; try other inputs, {}",
                      output.name, s, what, found.nan, found.inf, output.tensor.size(),
                      found.nan > 0 ? "or look for the first layer that gives NaN"
                                    : "or --infinities-compare-equal, with which the same infinity is no error"));
    }
}

/// Constants that only need clamping. Kept if the fp32 outputs stay where they are.
void Search::repair_constants() {
  for (const Repair& note : find_scale_shifts(*space_->trials().specialization(), space_->low()))
    repairs_.push_back(note);
  if (!options_.repair) return;
  const std::vector<Repair> clamps = find_clamps(*space_->trials().specialization(), space_->low());
  if (clamps.empty()) return;
  show("repairing constants");
  std::vector<TensorMap> samples = data_.samples;
  samples.insert(samples.end(), data_.held_out.begin(), data_.held_out.end());
  constexpr double kHarmless = 0.01;  // Of the tolerance.
  const auto attempt = [&](std::span<const Repair> chosen) {
    auto repaired = std::make_shared<Network>(*network_);
    SearchOptions options = options_;
    options.build.scales = scales_;
    apply_repairs(*repaired, options.build.scales, chosen);
    auto space = std::make_unique<SearchSpace>(repaired, options, samples, space_->trials().weights());
    const auto outputs = space->trials().run(space->trials().full_precision(), 0, data_.samples.size(), false);
    if (!criterion_.judge(golden_, outputs).passed(kHarmless * options_.margin)) return false;
    network_ = repaired;
    space_ = std::move(space);
    scales_ = options.build.scales;
    repairs_.insert(repairs_.end(), chosen.begin(), chosen.end());
    return true;
  };
  if (attempt(clamps) || clamps.size() == 1) return;
  for (const Repair& clamp : clamps) attempt({&clamp, 1});
}

/// Channels that one int8 scale does not suit. Kept if the fp32 outputs stay the same to the bit.
void Search::equalise() {
  const Assignment& low = space_->low();
  if (!options_.repair || std::ranges::find(low.precision, Precision::kINT8) == low.precision.end()) return;
  const auto spec = space_->trials().specialization();
  const std::vector<ChannelAxis> tensors = equalisable_tensors(*spec, low);
  if (tensors.empty()) return;
  show("equalising channels");
  CalibrationOptions calibration;
  calibration.threads = options_.build.threads;
  calibration.memory_limit = options_.memory_limit;
  std::vector<Repair> found;
  for (const Equalisation& each : find_equalisations(
           *spec, low, channel_ranges(*network_, tensors, data_.samples, calibration, space_->trials().weights()),
           scales_))
    found.push_back(repair_of(each));
  if (found.empty()) return;
  std::vector<TensorMap> samples = data_.samples;
  samples.insert(samples.end(), data_.held_out.begin(), data_.held_out.end());
  // Powers of two are exact unless values overflow or become subnormal: one sample shows whether the layers around take
  // them as they should, and every trial is judged by the golden outputs anyway.
  const auto exact = [](SearchSpace& space) {
    return space.trials().run(space.trials().full_precision(), 0, 1, false);
  };
  // The golden outputs, where they are this network's own.
  const bool golden_is_ours = data_.golden.empty() && network_ == data_.network;
  const std::vector<TensorMap> before = golden_is_ours ? std::vector<TensorMap>{golden_.front()} : exact(*space_);
  const auto attempt = [&](std::span<const Repair> chosen) {
    auto repaired = std::make_shared<Network>(*network_);
    auto scales = scales_;
    apply_repairs(*repaired, scales, chosen);
    SearchOptions options = options_;
    options.build.scales = scales;
    // Added layers move the others.
    for (auto* list : {&options.keep, &options.lower})
      for (LayerId& id : *list) id = repaired->find_layer(data_.network->layer(id).name);
    auto space = std::make_unique<SearchSpace>(repaired, options, samples, space_->trials().weights());
    if (!same_bits(before, exact(*space))) return false;
    network_ = repaired;
    scales_ = std::move(scales);
    space_ = std::move(space);
    repairs_.insert(repairs_.end(), chosen.begin(), chosen.end());
    return true;
  };
  if (attempt(found) || found.size() == 1) return;
  for (const Repair& each : found) attempt({&each, 1});
}

/// What costs no precision comes before layers are raised.
void Search::repair() {
  repair_constants();
  equalise();
}

Levels Search::head(Count count) const {
  Levels levels = space_->lowest();
  for (std::size_t i = 0; i < count; ++i) levels[order_[i]] = space_->highest_level();
  return levels;
}

bool Search::better(const Levels& a, const Levels& b) const {
  if (options_.objective == Objective::kCheapest) {
    const double cost_a = space_->cost_share(a), cost_b = space_->cost_share(b);
    if (cost_a != cost_b) return cost_a < cost_b;
  }
  return raised_count(a) != raised_count(b) ? raised_count(a) < raised_count(b)
                                            : space_->cost_share(a) < space_->cost_share(b);
}

double Search::used(const Levels& levels, const std::string& kind) {
  // Trials on the same samples are the same, whatever they were for.
  const bool held_out = kind == "hold-out";
  auto raised = space_->names(levels);
  if (const auto found = done_.find({held_out, raised}); found != done_.end()) return found->second;
  const Trial* known = journal_.find(kind, raised);
  if (known == nullptr) {
    check_limits(!held_out);
    const auto begin = Clock::now();
    Trial trial;
    trial.kind = kind;
    trial.raised = raised;
    trial.margin = held_out ? 1.0 : options_.margin;
    const std::size_t first = held_out ? data_.samples.size() : 0;
    const std::size_t count = held_out ? data_.held_out.size() : data_.samples.size();
    const auto outputs = space_->trials().run(space_->assignment(levels), first, count, !held_out && kind != "layer");
    trial.judgement = criterion_.judge(held_out ? held_out_golden_ : golden_, outputs);
    if (held_out) trial.samples_passed = samples_passed(trial.judgement, outputs);
    trial.time_us = space_->time_us(levels);
    trial.cost_share = space_->cost_share(levels);
    trial.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    journal_.add(std::move(trial));
    known = &journal_.trials().back();
  }
  ++(held_out ? held_out_evaluations_ : evaluations_);
  trials_.push_back(*known);
  const Judgement& judgement = trials_.back().judgement;
  log_verbose(fmt::format("{} | {} layer(s) raised | {:.4g} of the tolerance ({:.5g} at '{}')", kind, raised.size(),
                          judgement.used, judgement.value, judgement.worst_output));
  done_.emplace(std::pair(held_out, std::move(raised)), judgement.used);
  show(stage_);
  return judgement.used;
}

/// Of the held-out samples, each by itself at the whole tolerance.
int Search::samples_passed(const Judgement& together, std::span<const TensorMap> outputs) const {
  if (together.worst_sample < 0) return -1;  // A script may see what single samples do not have.
  int count = 0;
  for (std::size_t s = 0; s < outputs.size(); ++s)
    count += criterion_.judge({&held_out_golden_[s], 1}, {&outputs[s], 1}).passed() ? 1 : 0;
  return count;
}

bool Search::passes(const Levels& levels, const std::string& kind) { return used(levels, kind) <= options_.margin; }

/// The same for the first layers of the order; notes the best until one holds, and how far off the prediction is.
bool Search::head_passes(Count count) {
  const Levels levels = head(count);
  const double predicted = tail_effect(count), measured = used(levels, "search");
  // Far beyond the tolerance errors are not what they are near it: a cosine saturates.
  constexpr double kNear = 2;
  if (measured <= kNear && std::isfinite(predicted) && predicted > 0) correction_ = measured / predicted;
  const bool passed = measured <= options_.margin;
  if (passed && !best_holds_ && (!best_ || better(levels, *best_))) best_ = levels;
  return passed;
}

bool Search::passes_held_out(const Levels& levels) {
  if (!has_held_out()) return true;
  const std::string stage = stage_;
  show("checking held-out samples");
  const auto begin = Clock::now();
  if (held_out_golden_.empty()) {
    Trials exact(data_.network, options_.build, data_.held_out, space_->trials().weights());
    held_out_golden_ = exact.run(exact.full_precision(), false);
    check_golden_values(held_out_golden_, " of the held-out samples");
  }
  const bool passed = used(levels, "hold-out") <= 1.0;
  held_out_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
  stage_ = stage;
  return passed;
}

void Search::predict() {
  effects_ = predict_effects(space_->trials(), space_->low(), space_->candidates(), criterion_, golden_,
                             options_.predictor, [&](int done, int all) {
                               show("predicting", done, all);
                               if (options_.time_limit > 0 && elapsed() >= options_.time_limit)
                                 throw LimitReached{fmt::format("the time limit of {:g} s", options_.time_limit)};
                             });
  measured_.assign(effects_.size(), 0);
}

/// What no derivative tells is tried: one layer low, the others high.
void Search::measure_incomplete() {
  stage_ = "measuring layers without derivative";
  // Everything up to the layer that is low is shared with the run in which none is.
  if (std::ranges::any_of(effects_, &LayerEffect::incomplete))
    space_->trials().run(space_->assignment(space_->highest()), 0, data_.samples.size(), true);
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
void Search::doubt_harmless() {
  std::vector<std::size_t> harmless;
  for (std::size_t i = 0; i < effects_.size(); ++i)
    if (effects_[i].overflows && !effects_[i].incomplete && std::isfinite(effects_[i].effect)) harmless.push_back(i);
  if (harmless.empty()) return;
  stage_ = "trying overflows that look harmless";
  doubt(harmless);
}

void Search::doubt(std::span<const std::size_t> candidates) {
  Levels levels = space_->highest();
  for (std::size_t i : candidates) levels[i] = 0;
  const double measured = used(levels, "layer");
  if (measured <= options_.margin) return;
  if (candidates.size() == 1) {
    LayerEffect& effect = effects_[candidates.front()];
    effect.effect = std::max(effect.effect, amplitude_of(measured, criterion_.sensitivity()));
    measured_[candidates.front()] = 1;
    return;
  }
  doubt(candidates.first(candidates.size() / 2));
  doubt(candidates.subspan(candidates.size() / 2));
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
  while (count < order_.size() && !(tail_effect(count) * correction_ <= slack * options_.margin)) ++count;
  return count;
}

/// Often nothing needs raising, and then nothing needs predicting. Fused layers, too, may lose nothing together where
/// each by itself does.
bool Search::lowest_suffices() {
  show("trying the lowest precisions everywhere");
  const Levels levels = space_->lowest();
  if (!passes(levels, "search")) return false;
  best_ = levels;
  best_holds_ = passes_held_out(levels);
  return best_holds_;
}

void Search::find() {
  show("searching");
  const Count all = order_.size();
  std::int64_t fails = -1;
  Count count = 0, step = 1;
  if (!head_passes(0)) {  // Known from lowest_suffices.
    fails = 0;
    count = std::max<Count>(1, predicted_count(0));
  }
  // Upwards in growing steps, to where the corrected prediction points at least, until a trial passes.
  while (!head_passes(count)) {
    if (count == all) {
      unreachable_ = true;
      return;
    }
    fails = static_cast<std::int64_t>(count);
    count = std::min(all, std::max(count + step, predicted_count(count + 1)));
    step *= 2;
  }
  // Then downwards: one layer less at first, since the prediction is often right, then in growing steps.
  step = 1;
  while (static_cast<std::int64_t>(count) - fails > 1) {
    const auto lowest = static_cast<Count>(fails + 1);
    Count next = count - std::min(step, count - lowest);
    if (step > 1) next = std::max(next, std::min(count - 1, predicted_count(lowest, 4.0)));
    if (!head_passes(next)) {
      fails = static_cast<std::int64_t>(next);
      break;
    }
    count = next;
    step *= 2;
  }
  // And between the two: where the prediction points, and every third time in the middle.
  for (int turn = 0; static_cast<std::int64_t>(count) - fails > 1; ++turn) {
    const auto lowest = static_cast<Count>(fails + 1);
    const Count middle = lowest + (count - lowest) / 2;
    const Count next = turn % 3 == 2 ? middle : std::clamp(predicted_count(lowest), lowest, count - 1);
    if (head_passes(next))
      count = next;
    else
      fails = static_cast<std::int64_t>(next);
  }
  extend_for_held_out(count);
  const bool many = options_.objective == Objective::kCheapest ? space_->cost_share(*best_) > 0.5 : count > all / 2;
  if (best_holds_ && many) fall_back();
}

/// A set that passes here need not pass elsewhere: more layers are raised, in growing steps, until it does; then as few
/// of these as bisection finds.
void Search::extend_for_held_out(Count count) {
  const Count all = order_.size();
  const auto holds = [&](Count heads) { return head_passes(heads) && passes_held_out(head(heads)); };
  Count step = 1, fails = count;
  while (!holds(count)) {
    if (count == all) {
      fails_held_out_ = true;
      return;
    }
    fails = count;
    count = std::min(all, count + step);
    step *= 2;
  }
  best_ = head(count);
  best_holds_ = true;
  while (count > fails && count - fails > 1) {
    const Count middle = fails + (count - fails) / 2;
    if (!holds(middle)) {
      fails = middle;
      continue;
    }
    count = middle;
    best_ = head(count);
  }
}

/// Takes another set if it is better and holds.
void Search::adopt(const Levels& levels) {
  if (!better(levels, *best_) || !passes_held_out(levels)) return;
  best_ = levels;
  best_holds_ = true;
}

void Search::fall_back() {
  show("trying other orders");
  adopt(prefix_bisection(false));
  adopt(prefix_bisection(true));
  adopt(segment_search());
}

/// The first (or last) layers of the network, as few as bisection finds.
Levels Search::prefix_bisection(bool reverse) {
  const auto prefix = [&](Count count) {
    Levels levels = space_->lowest();
    for (Count i = 0; i < count; ++i) levels[reverse ? levels.size() - 1 - i : i] = space_->highest_level();
    return levels;
  };
  Count low = 0, high = order_.size();  // All of them pass.
  while (low < high && better(prefix(low), *best_)) {
    const Count middle = (low + high) / 2;
    if (passes(prefix(middle), "fallback"))
      high = middle;
    else
      low = middle + 1;
  }
  return prefix(high);
}

Levels Search::segment_search() {
  const auto levels_of = [&](const std::vector<char>& raised) {
    Levels levels = space_->lowest();
    for (Count i = 0; i < levels.size(); ++i)
      if (raised[i] != 0) levels[i] = space_->highest_level();
    return levels;
  };
  return levels_of(search_segments(order_.size(), 16 + order_.size() / 4, [&](const std::vector<char>& raised) {
    return passes(levels_of(raised), "fallback");
  }));
}

/// Takes layers out again, the least important first, in halving portions, while search and held-out samples pass.
void Search::shrink() {
  show("shrinking");
  Levels levels = *best_;
  const auto raised_in_order = [&] {
    std::vector<std::size_t> result;
    for (std::size_t i = order_.size(); i-- > 0;)
      if (levels[order_[i]] != 0) result.push_back(order_[i]);
    return result;
  };
  std::size_t portion = std::max<std::size_t>(1, raised_in_order().size() / 4);
  for (;;) {
    bool removed = false;
    const std::vector<std::size_t> members = raised_in_order();
    for (std::size_t begin = 0; begin < members.size(); begin += portion) {
      Levels candidate = levels;
      for (std::size_t i = begin; i < std::min(begin + portion, members.size()); ++i) candidate[members[i]] = 0;
      if (!passes(candidate, "shrink") || !passes_held_out(candidate)) continue;
      best_ = levels = std::move(candidate);
      removed = true;
    }
    if (portion == 1) {
      if (!removed) break;
    } else {
      portion = std::max<std::size_t>(1, portion / 2);
    }
  }
}

/// Where the ladder has rungs between: the kept layers as low as they can be.
void Search::lower_rungs() {
  show("lowering the kept layers");
  for (std::uint8_t rung = 1; rung < space_->highest_level(); ++rung) {
    std::vector<std::size_t> kept;  // The least important first.
    for (std::size_t i = order_.size(); i-- > 0;)
      if ((*best_)[order_[i]] == space_->highest_level()) kept.push_back(order_[i]);
    const Levels before = *best_;
    std::size_t good = 0, bad = kept.size() + 1, next = kept.size();
    while (bad - good > 1) {
      Levels levels = before;
      for (std::size_t i = 0; i < next; ++i) levels[kept[i]] = space_->effective_level(kept[i], rung);
      if (passes(levels, "search") && passes_held_out(levels)) {
        good = next;
        best_ = std::move(levels);
      } else {
        bad = next;
      }
      next = (good + bad) / 2;
    }
  }
}

/// When the trials have run out: the best set may still be without its proof.
void Search::verify_best() {
  if (!best_ || best_holds_) return;
  try {
    best_holds_ = passes_held_out(*best_);
  } catch (const LimitReached&) {  // Of time: it stays unproven.
  } catch (const SearchInterrupted&) {
  }
}

void Search::finish(Answer& answer) {
  answer.repairs = repairs_;
  answer.criterion = criterion_.description();
  answer.margin = options_.margin;
  answer.search_samples = static_cast<int>(data_.samples.size());
  answer.held_out_samples = static_cast<int>(data_.held_out.size());
  answer.target = options_.build.target;
  answer.evaluations = evaluations_;
  answer.held_out_evaluations = held_out_evaluations_;
  answer.held_out_seconds = held_out_seconds_;
  answer.trials = trials_;
  if (space_ == nullptr) return;
  answer.candidates = static_cast<int>(space_->candidates().size());
  answer.time_low_us = space_->time_us(space_->lowest());
  answer.time_high_us = space_->time_us(space_->highest());
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    const Layer& layer = network_->layer(effects_[i].layer);
    answer.sensitivities.push_back({layer.name, std::string(layer.op->name), effects_[i].effect, measured_[i] != 0});
  }
  if (!best_) return;
  const Levels& levels = *best_;
  answer.cost_share = space_->cost_share(levels);
  answer.time_us = space_->time_us(levels);
  answer.following = space_->following(levels);
  double squares = 0;
  bool infinite = false;
  for (const LayerEffect& e : effects_) {
    infinite |= !std::isfinite(e.effect);
    squares += std::isfinite(e.effect) ? e.effect * e.effect : 0;
  }
  std::vector<LayerId> kept;
  std::vector<char> harmless;  // Overflows that no gradient and no trial saw.
  for (std::size_t i = 0; i < levels.size(); ++i)
    if (levels[i] != 0) {
      kept.push_back(space_->candidates()[i]);
      harmless.push_back(i < effects_.size() && effects_[i].overflows && std::isfinite(effects_[i].effect));
    }
  const std::vector<Reason> reasons =
      explain_layers(space_->trials(), space_->low(), kept, data_.samples.size(), harmless);
  std::size_t k = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == 0) continue;
    const Layer& layer = network_->layer(space_->candidates()[i]);
    KeptLayer row;
    row.name = layer.name;
    row.op = layer.op->name;
    row.nodes = layer.nodes;
    row.precision = space_->precision(i, levels[i]);
    row.reason = reasons[k++];
    if (i < effects_.size()) {
      row.effect = effects_[i].effect;
      row.reason.share = infinite      ? (std::isfinite(row.effect) ? 0.0 : 1.0)
                         : squares > 0 ? row.effect * row.effect / squares
                                       : 0;
      if (measured_[i] != 0 && row.reason.kind == ReasonKind::kRounding) row.reason.kind = ReasonKind::kMeasured;
    }
    answer.kept.push_back(std::move(row));
  }
  for (const Trial& trial : trials_) {
    if (trial.raised != space_->names(levels)) continue;
    if (trial.kind == "hold-out") {
      answer.held_out = trial.judgement;
      answer.held_out_passed = std::max(0, trial.samples_passed);
      if (trial.judgement.passed()) answer.held_out_passed = answer.held_out_samples;
    } else if (trial.kind != "layer") {
      answer.search = trial.judgement;
    }
  }
}

std::string Search::sentence(const Answer& answer, const std::string& ended) const {
  const std::string after = ended.empty() ? "" : fmt::format("; the search ended at {}", ended);
  const std::string where = fmt::format("'{}'", answer.search.worst_output);
  switch (answer.verdict) {
    case Answer::Verdict::kFound:
      if (answer.kept.empty()) return "No layer needs more precision" + after;
      return fmt::format("{} of {} layers need more precision{}", answer.kept.size(), answer.candidates, after);
    case Answer::Verdict::kNotReachable:
      return fmt::format(
          "Not reachable: with all {} layers raised the outputs still use {:.4g} of the tolerance at {} (limit: {:g}); "
          "it is too tight for {}, or --lower and constraints hold back the layers that matter",
          answer.candidates, answer.search.used, where, answer.margin, name_of(options_.ladder.back()));
    case Answer::Verdict::kFailsHeldOut:
      return fmt::format("The held-out samples fail whatever is raised ({:.4g} of the tolerance){}",
                         answer.held_out ? answer.held_out->used : kInfinity, after);
    case Answer::Verdict::kUnverified:
      break;
  }
  if (!best_) return fmt::format("No passing set yet{}", after);
  if (answer.held_out)
    return fmt::format("{} of {} layers pass the search samples, but not the held-out samples{}", answer.kept.size(),
                       answer.candidates, after);
  return fmt::format("{} of {} layers pass the search samples, but the held-out samples were not checked{}",
                     answer.kept.size(), answer.candidates, after);
}

Answer Search::run() {
  Answer answer;
  std::string ended;
  try {
    prepare();
    repair();
    if (space_->candidates().empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "[search] there is nothing to search: no layer would run in lower precision; try --fp16, --bf16 or "
                  "--int8 (with calibration), or fewer names in --keep and --lower");
    if (!lowest_suffices()) {
      predict();
      measure_incomplete();
      doubt_harmless();
      order();
      find();
    }
    if (best_holds_ && space_->highest_level() > 1) lower_rungs();
    if (best_holds_ && options_.shrink) shrink();
  } catch (const LimitReached& limit) {
    ended = limit.what;
    if (stage_ != "searching") ended += ", while " + stage_;
    verify_best();
  } catch (const SearchInterrupted& interrupted) {
    ended = interrupted.what();
  }
  // The best so far may still be without its proof.
  const bool proven = best_ && (best_holds_ || !has_held_out());
  if (unreachable_) {
    answer.verdict = Answer::Verdict::kNotReachable;
  } else if (fails_held_out_) {
    answer.verdict = Answer::Verdict::kFailsHeldOut;
  } else if (proven) {
    answer.verdict = Answer::Verdict::kFound;
  }
  if (unreachable_) best_ = space_->highest();
  finish(answer);
  answer.message = sentence(answer, ended);
  answer.seconds = elapsed();
  return answer;
}

}  // namespace

Answer search_precisions(const SearchData& data, const Criterion& criterion, const SearchOptions& options,
                         Journal& journal, const SearchObserver& observer) {
  return Search(data, criterion, options, journal, observer).run();
}

}  // namespace ulpscope
