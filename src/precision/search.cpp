#include "precision/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "precision/search_process.h"
#include "precision/segment_search.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {

namespace {

/// To 4 digits: the journal keeps no more, and a search that goes on must see what this one saw.
double rounded(double value) { return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr); }

}  // namespace

/// Says how long the one before took.
void Search::begin_stage(const std::string& stage) {
  if (stage == timed_stage_) return;
  const double now = elapsed();
  if (!timed_stage_.empty()) log_verbose(fmt::format("{}: {:.3f} s", timed_stage_, now - stage_begin_));
  memory_.enter(stage);
  timed_stage_ = stage;
  stage_begin_ = now;
}

void Search::show(const std::string& stage, int done, int all) {
  begin_stage(stage);
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

/// A user's script that an interruption ends is no failure of the script: the search shall hand over what it has.
Judgement Search::judge(std::span<const TensorMap> golden, std::span<const TensorMap> outputs) {
  try {
    return criterion_.judge(golden, outputs);
  } catch (const Error&) {
    show(stage_);
    throw;
  }
}

std::span<const TensorMap> Search::golden_of(std::size_t first, std::size_t count) const {
  if (first >= searched_) return std::span<const TensorMap>(held_out_golden_).subspan(first - searched_, count);
  return std::span<const TensorMap>(golden_).subspan(first, count);
}

TrialResult Search::run_trial(SearchSpace& space, const Assignment& assignment, std::size_t first, std::size_t count,
                              bool keep) {
  TrialResult result;
  Trials& trials = space.trials();
  const auto meanwhile = [&] { check_limits(false); };
  if (trials.remote() != nullptr && data_.judged_there) {
    result.each = trials.remote()->judge(assignment, first, count, keep, meanwhile);
    result.judgement = combine_judgements(result.each);
  } else {
    result.outputs = trials.run(assignment, first, count, keep, meanwhile);
    result.judgement = judge(golden_of(first, count), result.outputs);
  }
  return result;
}

void Search::expect(const std::vector<std::pair<Levels, const char*>>& trials) {
  RemoteSamples* const remote = space_->trials().remote();
  if (remote == nullptr || !data_.judged_there) return;
  std::vector<WorkItem> items;
  for (const auto& [levels, kind] : trials) {
    const auto [first, count] = samples_of(kind);
    const bool held_out = first > 0;
    const RaisedLayers raised = space_->names(levels);
    if (count == 0 || done_.contains({held_out ? kind : "search", raised.marks()}) ||
        journal_.find(kind, raised, repair_words_, joined_, static_cast<int>(validated_)) != nullptr)
      continue;
    remote->add_judge_items(space_->assignment(levels), first, count, !held_out && kind != std::string_view("layer"),
                            items);
  }
  remote->queue().expect(items);
}

void Search::check_time() const {
  if (is_late()) throw LimitReached{fmt::format("the time limit of {:g} s", options_.time_limit)};
}

/// `limited`: it counts against --max-trials.
void Search::check_limits(bool limited) {
  show(stage_);
  check_time();
  if (limited && options_.max_trials > 0 && evaluations_ >= options_.max_trials)
    throw LimitReached{
        fmt::format("the limit of {} trial{}", options_.max_trials, options_.max_trials == 1 ? "" : "s")};
}

Levels Search::head(Count count) const {
  Levels levels = space_->lowest();
  for (std::size_t i = 0; i < count; ++i) levels[order_[i]] = space_->highest_level();
  return levels;
}

bool Search::better(const Levels& a, const Levels& b, Objective objective) const {
  if (objective == Objective::kFastest) {
    const double time_a = space_->time_us(a), time_b = space_->time_us(b);
    if (time_a != time_b) return time_a < time_b;
  }
  if (objective == Objective::kCheapest) {
    const double cost_a = space_->cost_share(a), cost_b = space_->cost_share(b);
    if (cost_a != cost_b) return cost_a < cost_b;
  }
  return raised_count(a) != raised_count(b) ? raised_count(a) < raised_count(b)
                                            : space_->cost_share(a) < space_->cost_share(b);
}

/// From the journal, or run. Valid until the next one.
const Trial& Search::trial_of(SearchSpace& space, const std::vector<std::string>& repairs, const Levels& levels,
                              const std::string& kind) {
  const auto [first, count] = samples_of(kind);
  const bool held_out = first > 0;
  Trial trial;
  trial.kind = kind;
  trial.raised = space.names(levels);
  trial.repairs = repairs;
  trial.joined = joined_;
  trial.validation = static_cast<int>(validated_);
  if (const Trial* known = journal_.find(kind, trial.raised, repairs, trial.joined, trial.validation)) return *known;
  check_limits(!held_out && kind != "repair");
  const auto begin = Clock::now();
  trial.margin = held_out ? 1.0 : margin_;
  const bool is_known = !held_out && low_result_ && &space == space_.get() && raised_count(levels) == 0;
  const TrialResult result =
      is_known ? *std::exchange(low_result_, std::nullopt)
               : run_trial(space, space.assignment(levels), first, count, !held_out && kind != "layer");
  trial.judgement = result.judgement;
  // A script may see what single samples do not have.
  if (trial.judgement.worst_sample >= 0 && (held_out || (margin_is_open_ && trial.judgement.used <= kNear))) {
    const std::vector<Judgement> each = judge_each(result, first);
    if (held_out)
      trial.samples_passed =
          static_cast<int>(std::ranges::count_if(each, [](const Judgement& j) { return j.passed(); }));
    else
      for (const Judgement& j : each) trial.sample_used.push_back(rounded(j.used));
  }
  trial.time_us = space.time_us(levels);
  trial.cost_share = space.cost_share(levels);
  trial.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  journal_.add(std::move(trial));
  return journal_.trials().back();
}

double Search::used(const Levels& levels, const std::string& kind) {
  // Trials on the same samples are the same, whatever they were for.
  const bool held_out = samples_of(kind).first > 0;
  const std::string samples = held_out ? kind : "search";
  const RaisedLayers raised = space_->names(levels);
  if (const auto found = done_.find({samples, raised.marks()}); found != done_.end()) return found->second;
  trials_.push_back(trial_of(*space_, repair_words_, levels, kind));
  ++(held_out ? held_out_evaluations_ : evaluations_);
  if (trials_.back().kind == "repair") trials_.back().kind = kind;
  const Judgement& judgement = trials_.back().judgement;
  if (held_out)
    last_held_out_ = judgement;
  else if (kind != "layer")
    set_margin(trials_.back());
  log_verbose(fmt::format("{} | {} layer(s) raised | {:.4g} of the tolerance ({:.5g} at '{}')", kind, raised.size(),
                          judgement.used, judgement.value, judgement.worst_output));
  done_.emplace(std::pair(samples, raised.marks()), judgement.used);
  show(stage_);
  return judgement.used;
}

/// Each sample by itself.
std::vector<Judgement> Search::judge_each(const TrialResult& result, std::size_t first) {
  if (!result.each.empty()) return result.each;
  std::vector<Judgement> each;
  for (std::size_t s = 0; s < result.outputs.size(); ++s)
    each.push_back(judge(golden_of(first + s, 1), {&result.outputs[s], 1}));
  return each;
}

/// Samples whose shares of the tolerance lie far apart say that others may use much more: the wider they are spread,
/// the narrower the margin (measured in docs/precision_search.md).
void Search::set_margin(const Trial& trial) {
  if (!margin_is_open_ || trial.sample_used.empty()) return;
  std::vector<double> logarithms;
  for (const double used : trial.sample_used)
    if (used > 0) logarithms.push_back(std::log(used));
  margin_is_open_ = false;
  if (logarithms.size() < 2) return;
  const double n = static_cast<double>(logarithms.size());
  const double mean = std::accumulate(logarithms.begin(), logarithms.end(), 0.0) / n;
  double squares = 0;
  for (const double each : logarithms) squares += (each - mean) * (each - mean);
  margin_ = std::clamp(std::exp(-2.5 * std::sqrt(squares / n)), kNarrowestMargin, kWidestMargin);
  log_verbose(
      fmt::format("searching at {:.3g} of the tolerance: the shares that {} samples use deviate by a factor of "
                  "{:.3g}",
                  margin_, logarithms.size(), std::exp(std::sqrt(squares / n))));
}

bool Search::passes(const Levels& levels, const std::string& kind) { return used(levels, kind) <= margin_; }

/// The same for the first layers of the order; notes the best until one holds, and how far off the prediction is.
bool Search::head_passes(Count count) {
  const Levels levels = head(count);
  const double predicted = tail_effect(count), measured = used(levels, "search");
  if (measured <= kNear) scale_.note(predicted, measured);
  const bool passed = measured <= margin_;
  if (passed && !best_holds_ && (!best_ || better(levels, *best_))) best_ = levels;
  return passed;
}

/// Often nothing needs raising, and then nothing needs predicting. Fused layers, too, may lose nothing together where
/// each by itself does.
bool Search::lowest_suffices() {
  show("trying the lowest precisions everywhere");
  Levels levels = space_->lowest();
  expect({{levels, "hold-out"}});
  if (!passes(levels, "search")) return false;
  if (options_.objective == Objective::kFastest && !faster_than_lowest(levels)) return false;
  best_ = levels;
  best_holds_ = passes_held_out(levels);
  if (!best_holds_ && join_failing_sample()) return lowest_suffices();
  return best_holds_;
}

void Search::find() {
  show("searching");
  const Count all = order_.size();
  std::int64_t fails = -1;
  Count count = 0, step = 1;
  // Known from lowest_suffices; what fails on some samples fails on more.
  if (joined_ > 0 || !head_passes(0)) {
    fails = 0;
    // Layers whose effects are not finite have to be raised. What the others do together, a trial of these alone tells
    // better than a prediction that asks for many more.
    const auto infinite = static_cast<Count>(
        std::ranges::count_if(effects_, [](const LayerEffect& e) { return !std::isfinite(e.effect); }));
    count = std::max<Count>(1, predicted_count(0));
    if (infinite > 0 && count > 2 * infinite) count = infinite;
  }
  // Upwards in growing steps, to where the corrected prediction points at least, until a trial passes.
  const auto tries = [&](Count tried, Count if_passes, Count if_not) {
    expect({{head(if_passes), "search"}, {head(if_not), "search"}, {head(tried), "hold-out"}});
    return head_passes(tried);
  };
  while (!tries(count, count - std::min<Count>(count, 1), std::min(all, count + step))) {
    if (count == all) {
      if (space_->raise_biases()) {
        scale_.clear();
        return find();
      }
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
    if (!tries(next, next - std::min(2 * step, next - lowest), next + (count - next) / 2)) {
      fails = static_cast<std::int64_t>(next);
      break;
    }
    count = next;
    step = std::min(2 * step, all);
  }
  // And between the two: where the prediction points, and every third time in the middle.
  for (int turn = 0; static_cast<std::int64_t>(count) - fails > 1; ++turn) {
    const auto lowest = static_cast<Count>(fails + 1);
    const Count middle = lowest + (count - lowest) / 2;
    const Count next = turn % 3 == 2 ? middle : std::clamp(predicted_count(lowest), lowest, count - 1);
    if (tries(next, lowest + (next - lowest) / 2, next + (count - next) / 2))
      count = next;
    else
      fails = static_cast<std::int64_t>(next);
  }
  extend_for_held_out(count);
  const bool many = options_.objective == Objective::kCheapest ? space_->cost_share(*best_) > 0.5 : count > all / 2;
  if (best_holds_ && many) fall_back();
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
    expect({{prefix((low + middle) / 2), "fallback"}, {prefix((middle + 1 + high) / 2), "fallback"}});
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
  return levels_of(search_segments(order_.size(), segment_budget(order_.size()), [&](const std::vector<char>& raised) {
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
      const auto without = [&](std::size_t from, Levels rest) {
        for (std::size_t i = from; i < std::min(from + portion, members.size()); ++i) rest[members[i]] = 0;
        return rest;
      };
      Levels candidate = without(begin, levels);
      const Levels also = without(begin + portion, candidate), instead = without(begin + portion, levels);
      expect({{instead, "shrink"}, {candidate, "hold-out"}, {also, "shrink"}});
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
      expect({{levels, "hold-out"}});
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

/// The best set that passes the samples of the search and of validation, if there is one.
void Search::choose() {
  if (joined_ > 0 || !lowest_suffices()) {
    if (effects_.empty()) {
      predict();
      measure_incomplete();
      test_harmless_overflows();
    }
    order();
    if (options_.objective == Objective::kFastest)
      find_fastest();
    else
      find();
  }
  if (best_holds_ && space_->highest_level() > 1 && options_.objective != Objective::kFastest) lower_rungs();
  if (best_holds_ && options_.shrink) shrink();
}

Answer Search::run() {
  Answer answer;
  std::string ended;
  try {
    prepare();
    repair();
    keep_cancellations();
    if (space_->candidates().empty())
      throw Error(ErrorCode::kInvalidArgument,
                  "[search] there is nothing to search: no layer would run in lower precision; try --fp16, --bf16 or "
                  "--int8 (with calibration), or fewer names in --keep and --lower");
    do {
      choose();
      if (unreachable_) best_ = space_->highest();
      drop_useless_repairs();
      untouched_holds_ = best_holds_ && passes_untouched(*best_);
    } while (best_holds_ && !untouched_holds_ && take_untouched());
    if (untouched_holds_) prove_sets();
  } catch (const LimitReached& limit) {
    ended = limit.what;
    if (stage_ != "searching") ended += ", while " + stage_;
    verify_best();
  } catch (const SearchInterrupted& interrupted) {
    ended = interrupted.what();
    interrupted_ = true;
    // What is left to do is done here, whoever is gone.
    if (space_ != nullptr) space_->trials().set_workers(nullptr);
  }
  if (unreachable_) {
    answer.verdict = Answer::Verdict::kNotReachable;
  } else if (fails_held_out_ || fails_untouched_) {
    answer.verdict = Answer::Verdict::kFailsHeldOut;
  } else if (best_ && (untouched_holds_ || !has_held_out())) {
    answer.verdict = Answer::Verdict::kFound;
  }
  nothing_proven_ = !best_ && !unreachable_ && space_ != nullptr && !ended.empty();
  if (nothing_proven_) {
    forget_repairs();
    best_ = space_->highest();
  }
  begin_stage("explaining");
  finish(answer);
  begin_stage("");
  memory_.finish();
  answer.message = sentence(answer, ended);
  answer.seconds = elapsed();
  return answer;
}

Answer search_precisions(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                         Journal& journal, const SearchObserver& observer) {
  return Search(data, criterion, options, journal, observer).run();
}

}  // namespace ulpscope
