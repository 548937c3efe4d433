#include "precision/search_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/counted.h"
#include "precision/remote_samples.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Uses of the tolerance beyond this say little about those near it: a cosine saturates.
constexpr double kNear = 2;

/// Trials on the same samples are the same, whatever they were for.
TrialKind same_samples(TrialKind kind) { return is_held_out(kind) ? kind : TrialKind::kSearch; }

bool keeps_activations(TrialKind kind) { return !is_held_out(kind) && kind != TrialKind::kLayer; }

/// Each sample by itself.
std::vector<Judgement> judge_each(SearchState& search, const TrialResult& result, std::size_t first) {
  if (!result.each.empty()) return result.each;
  std::vector<Judgement> each;
  for (std::size_t s = 0; s < result.outputs.size(); ++s)
    each.push_back(search.judge(search.samples.golden_of(first + s, 1), {&result.outputs[s], 1}));
  return each;
}

/// Samples whose shares of the tolerance lie far apart say that others may use much more: the wider they are spread,
/// the narrower the margin (measured in docs/search_algorithm.md).
void set_margin(SearchState& search, const Trial& trial) {
  if (!search.samples.margin_is_open || trial.sample_used.empty()) return;
  std::vector<double> logarithms;
  for (const double used : trial.sample_used)
    if (used > 0) logarithms.push_back(std::log(used));
  search.samples.margin_is_open = false;
  if (logarithms.size() < 2) return;
  const double n = static_cast<double>(logarithms.size());
  const double mean = std::accumulate(logarithms.begin(), logarithms.end(), 0.0) / n;
  double squares = 0;
  for (const double each : logarithms) squares += (each - mean) * (each - mean);
  search.answer.margin = std::clamp(std::exp(-kSpreadMargin * std::sqrt(squares / n)), kNarrowestMargin, kWidestMargin);
  log_verbose(
      fmt::format("searching at {:.3g} of the tolerance: the shares that {} samples use deviate by a factor of "
                  "{:.3g}",
                  search.answer.margin, logarithms.size(), std::exp(std::sqrt(squares / n))));
}

}  // namespace

SearchSamples::SearchSamples(const SearchData& data)
    : all(data.samples.size() + data.held_out.size()),
      searched(data.samples.size()),
      validated(data.held_out.size() < 2 ? data.held_out.size() : data.held_out.size() / 2),
      golden(data.golden),
      held_out_golden(data.held_out_golden) {}

std::pair<std::size_t, std::size_t> SearchSamples::of(TrialKind kind) const {
  const std::size_t behind = searched + validated, first_share = (untouched() + 1) / 2;
  if (kind == TrialKind::kHoldOut) return {searched, validated};
  if (kind == TrialKind::kUntouched) return {behind, first_share};
  if (kind == TrialKind::kUntouchedRest) return {behind + first_share, untouched() - first_share};
  return {0, searched};
}

std::span<const TensorMap> SearchSamples::golden_of(std::size_t first, std::size_t count) const {
  if (first >= searched) return std::span(held_out_golden).subspan(first - searched, count);
  return std::span(golden).subspan(first, count);
}

SearchState::SearchState(const SearchData& of, const Criterion& judged_by, const SearchTask& task, Journal& kept_in,
                         const SearchObserver& watched_by)
    : data(of),
      criterion(judged_by),
      options(task),
      journal(kept_in),
      observer(watched_by),
      watch(task.memory_limit),
      samples(of) {
  answer.margin = options.margin > 0 ? options.margin : kWidestMargin;
  samples.margin_is_open = options.margin <= 0;
}

void SearchState::show(Stage next, int stage_done, int stage_all) {
  watch.enter(next);
  stage = next;
  if (!observer) return;
  SearchProgress progress;
  progress.stage = text_of(stage);
  progress.done = stage_done;
  progress.all = stage_all;
  progress.trials = answer.evaluations;
  if (verdict.best) progress.best = static_cast<std::int64_t>(raised_count(*verdict.best));
  observer(progress);
}

bool SearchState::is_late(double share) const {
  return options.time_limit > 0 && watch.elapsed() + options.time_spent >= share * options.time_limit;
}

void SearchState::check_time() const {
  if (is_late()) throw LimitReached{fmt::format("the time limit of {:g} s", options.time_limit)};
}

void SearchState::check_limits(bool counted) {
  show(stage);
  check_time();
  if (counted && options.max_trials > 0 && answer.evaluations >= options.max_trials)
    throw LimitReached{"the limit of " + ulpscope::counted(options.max_trials, "trial")};
}

Judgement SearchState::judge(std::span<const TensorMap> golden, std::span<const TensorMap> outputs) {
  try {
    return criterion.judge(golden, outputs);
  } catch (const Error&) {
    show(stage);
    throw;
  }
}

TrialResult SearchState::run(SearchSpace& in, const Assignment& assignment, std::size_t first, std::size_t count,
                             bool keep) {
  TrialResult result;
  const auto meanwhile = [&] { check_limits(); };
  if (RemoteSamples* const remote = in.trials().remote(); remote != nullptr && data.judged_there) {
    result.each = remote->judge(assignment, first, count, keep, meanwhile);
    result.judgement = combine_judgements(result.each);
  } else {
    result.outputs = in.trials().run(assignment, first, count, keep, meanwhile);
    result.judgement = judge(samples.golden_of(first, count), result.outputs);
  }
  return result;
}

const Trial& SearchState::trial_of(SearchSpace& in, const std::vector<std::string>& repair_words, const Levels& levels,
                                   TrialKind kind) {
  const auto [first, count] = samples.of(kind);
  const bool held_out = is_held_out(kind);
  Trial trial;
  trial.kind = kind;
  trial.raised = in.names(levels);
  trial.repairs = repair_words;
  trial.joined = samples.joined;
  trial.validation = static_cast<int>(samples.validated);
  if (const Trial* known = journal.find(kind, trial.raised, repair_words, trial.joined, trial.validation))
    return *known;
  check_limits(!held_out && kind != TrialKind::kRepair);
  const double begin = watch.elapsed();
  trial.margin = held_out ? 1.0 : answer.margin;
  const bool is_known = !held_out && repairs.low && &in == &space() && raised_count(levels) == 0;
  const TrialResult result = is_known ? *std::exchange(repairs.low, std::nullopt)
                                      : run(in, in.assignment(levels), first, count, keeps_activations(kind));
  trial.judgement = result.judgement;
  // A script may see what single samples do not have.
  if (trial.judgement.worst_sample >= 0 && (held_out || (samples.margin_is_open && trial.judgement.used <= kNear))) {
    const std::vector<Judgement> each = judge_each(*this, result, first);
    if (held_out)
      trial.samples_passed =
          static_cast<int>(std::ranges::count_if(each, [](const Judgement& j) { return j.passed(); }));
    else
      for (const Judgement& j : each) trial.sample_used.push_back(j.used);
  }
  trial.time_us = in.time_us(levels);
  trial.cost_share = in.cost_share(levels);
  trial.seconds = watch.elapsed() - begin;
  journal.add(std::move(trial));
  return journal.trials().back();
}

double SearchState::used(const Levels& levels, TrialKind kind) {
  const RaisedLayers raised = space().names(levels);
  const std::pair key(same_samples(kind), raised.marks());
  if (const auto found = done.find(key); found != done.end()) return found->second;
  answer.trials.push_back(trial_of(space(), repairs.words, levels, kind));
  Trial& trial = answer.trials.back();
  ++(is_held_out(kind) ? answer.held_out_evaluations : answer.evaluations);
  if (trial.kind == TrialKind::kRepair) trial.kind = kind;
  const Judgement& judgement = trial.judgement;
  if (is_held_out(kind))
    verdict.last_held_out = judgement;
  else if (kind != TrialKind::kLayer)
    set_margin(*this, trial);
  log_verbose(fmt::format("{} | {} raised | {:.4g} of the tolerance ({:.5g} at '{}')", name_of(kind),
                          counted(std::ssize(raised), "layer"), judgement.used, judgement.value,
                          judgement.worst_output));
  done.emplace(key, judgement.used);
  show(stage);
  return judgement.used;
}

bool SearchState::is_within(double share, double most) const {
  return options.has_tolerance ? share <= most : std::isfinite(share);
}

double LayerEvidence::weight(std::size_t candidate) const {
  return effects[candidate].far_apart ? std::numeric_limits<double>::infinity() : effects[candidate].effect;
}

bool LayerEvidence::is_bold(const Levels& levels) const {
  for (std::size_t i = 0; i < effects.size(); ++i)
    if (effects[i].far_apart && levels[i] == 0) return true;
  return false;
}

bool SearchState::passes(const Levels& levels, TrialKind kind) {
  if (layers.is_bold(levels)) return false;
  const double share = used(levels, kind);  // Which may set the margin.
  return is_within(share, answer.margin);
}

bool SearchState::passes(const Levels& levels, double predicted) {
  const bool is_bold = layers.is_bold(levels);
  if (is_bold) {
    // Not tried, unless it is known what it uses; of these samples, then.
    if (!done.contains({TrialKind::kSearch, space().names(levels).marks()})) return false;
    double squares = 0;
    for (std::size_t i = 0; i < levels.size(); ++i)
      if (levels[i] == 0) squares += layers.effects[i].effect * layers.effects[i].effect;
    predicted = predicted_use(std::sqrt(squares), criterion.sensitivity());
  }
  const double measured = used(levels, TrialKind::kSearch);
  if (measured <= kNear) layers.scale.note(predicted, measured);
  if (is_bold || !is_within(measured, answer.margin)) return false;
  if (!verdict.holds() && (!verdict.best || better(levels, *verdict.best))) verdict.best = levels;
  return true;
}

void SearchState::expect(const std::vector<std::pair<Levels, TrialKind>>& trials) {
  RemoteSamples* const remote = space().trials().remote();
  if (remote == nullptr || !data.judged_there) return;
  std::vector<WorkItem> items;
  for (const auto& [levels, kind] : trials) {
    const auto [first, count] = samples.of(kind);
    const RaisedLayers raised = space().names(levels);
    if (count == 0 || done.contains({same_samples(kind), raised.marks()}) ||
        journal.find(kind, raised, repairs.words, samples.joined, static_cast<int>(samples.validated)) != nullptr)
      continue;
    remote->add_judge_items(space().assignment(levels), first, count, keeps_activations(kind), items);
  }
  remote->queue().expect(items);
}

bool SearchState::better(const Levels& a, const Levels& b, const ObjectiveRule& by) const {
  if (by.amount != nullptr)
    if (const double of_a = by.amount(space(), a), of_b = by.amount(space(), b); of_a != of_b) return of_a < of_b;
  return raised_count(a) != raised_count(b) ? raised_count(a) < raised_count(b)
                                            : space().cost_share(a) < space().cost_share(b);
}

}  // namespace ulpscope
