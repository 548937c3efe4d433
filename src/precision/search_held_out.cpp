// Samples that a search does not look at: those of validation, by which it corrects itself, and the untouched ones,
// which only judge.
#include <fmt/format.h>

#include <algorithm>

#include "precision/remote_samples.h"
#include "precision/search_phases.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// The samples have become others.
void forget_best(SearchState& search) {
  search.done.clear();
  search.verdict.best.reset();
  search.verdict.enough.reset();
  search.verdict.proof = Verdict::Proof::kSearched;
}

}  // namespace

void compute_held_out_golden(SearchState& search) {
  if (!search.samples.held_out_golden.empty()) return;
  Trials& trials = search.space().trials();
  Trials exact(search.data.network, search.options.build, search.data.held_out, trials.weights());
  exact.set_memory_limit(search.options.memory_limit);
  if (trials.remote() != nullptr) exact.set_workers(search.data.workers, {}, search.data.samples.size());
  search.samples.held_out_golden =
      exact.run(exact.full_precision(), 0, exact.num_samples(), false, [&] { search.check_limits(); });
  check_golden_values(search, search.samples.held_out_golden, search.data.samples.size());
}

bool passes_held_out(SearchState& search, const Levels& levels) {
  if (search.samples.validated == 0) return true;
  const Stage stage = search.stage;
  search.show(Stage::kHeldOut);
  const double begin = search.watch.elapsed();
  compute_held_out_golden(search);
  const bool passed = search.is_within(search.used(levels, TrialKind::kHoldOut), 1.0);
  search.samples.validation_used |= !passed;
  search.answer.held_out_seconds += search.watch.elapsed() - begin;
  search.stage = stage;
  return passed;
}

bool passes_untouched(SearchState& search, const Levels& levels) {
  const std::size_t untouched = search.samples.untouched();
  if (untouched == 0) return true;
  search.show(Stage::kUntouched);
  const double begin = search.watch.elapsed();
  compute_held_out_golden(search);
  search.expect({{levels, TrialKind::kUntouchedRest}});
  const auto holds = [&](TrialKind kind) { return search.is_within(search.used(levels, kind), 1.0); };
  const bool passed = holds(TrialKind::kUntouched) && (untouched == 1 || holds(TrialKind::kUntouchedRest));
  search.answer.held_out_seconds += search.watch.elapsed() - begin;
  return passed;
}

bool take_untouched(SearchState& search) {
  SearchSamples& samples = search.samples;
  const std::size_t share = (samples.untouched() + 1) / 2;
  if (samples.untouched() == share || search.is_within(search.used(*search.verdict.best, TrialKind::kUntouched), 1.0)) {
    search.verdict.failure = Verdict::Failure::kFailsUntouched;
    return false;
  }
  search.verdict.last_held_out.worst_sample += static_cast<int>(samples.validated);
  samples.validated += share;
  samples.validation_used = true;
  if (!join_failing_sample(search)) forget_best(search);
  return true;
}

bool join_failing_sample(SearchState& search) {
  SearchSamples& samples = search.samples;
  const Judgement& failed = search.verdict.last_held_out;
  if (failed.worst_sample < 0 || samples.held_out() < 2) return false;
  const auto at = static_cast<std::size_t>(failed.worst_sample), place = samples.searched + at;
  std::vector<TensorMap>& golden = samples.held_out_golden;
  // Golden results of elsewhere may be out of reach.
  Trials& trials = search.space().trials();
  if (!search.data.held_out_golden.empty() &&
      !search.judge({&golden[at], 1}, trials.run(trials.full_precision(), place, 1, false))
           .passed(search.answer.margin))
    return false;
  log_info(fmt::format("Held-out sample {} fails ({:.4g} of the tolerance at '{}'): it joins the search", at,
                       failed.used, failed.worst_output));
  samples.moves.emplace_back(place, samples.searched);
  trials.move_sample(place, samples.searched);
  samples.golden.push_back(std::move(golden[at]));
  golden.erase(golden.begin() + static_cast<std::ptrdiff_t>(at));
  ++samples.searched;
  --samples.validated;
  ++samples.joined;
  forget_best(search);
  if (!search.layers.effects.empty() && !search.rule().of_formats) add_sample(search, samples.searched - 1);
  return true;
}

void verify_best(SearchState& search) {
  Verdict& verdict = search.verdict;
  if (!verdict.best || verdict.proof == Verdict::Proof::kUntouched) return;
  try {
    if (!verdict.holds() && !passes_held_out(search, *verdict.best)) return;
    verdict.proof = Verdict::Proof::kValidated;
    if (passes_untouched(search, *verdict.best))
      verdict.proof = Verdict::Proof::kUntouched;
    else if (verdict.failure == Verdict::Failure::kNone)
      verdict.failure = Verdict::Failure::kFailsUntouched;
  } catch (const LimitReached&) {  // Of time: it stays unproven.
  } catch (const SearchInterrupted&) {
  }
}

void add_held_out(SearchState& search, const Levels& levels) {
  const SearchSamples& samples = search.samples;
  Answer& answer = search.answer;
  answer.validation_samples = samples.validation_used ? static_cast<int>(samples.validated) : 0;
  const bool validation_counts = !samples.validation_used || samples.untouched() == 0 ||
                                 search.verdict.failure == Verdict::Failure::kFailsValidation;
  const std::size_t left_out = validation_counts ? 0 : samples.validated;
  answer.held_out_samples = static_cast<int>(samples.held_out() - left_out);
  Judgement all;
  int judged = 0, passed = 0;
  const auto raised = search.space().names(levels);
  for (const TrialKind kind : {TrialKind::kHoldOut, TrialKind::kUntouched, TrialKind::kUntouchedRest}) {
    if (kind == TrialKind::kHoldOut && !validation_counts) continue;
    const Trial* trial =
        search.journal.find(kind, raised, search.repairs.words, samples.joined, static_cast<int>(samples.validated));
    if (trial == nullptr) continue;
    Judgement judgement = trial->judgement;
    const auto [first, count] = samples.of(kind);
    const int before = static_cast<int>(first - samples.searched - left_out);
    judged += static_cast<int>(count);
    passed += judgement.passed() ? static_cast<int>(count) : std::max(0, trial->samples_passed);
    if (judgement.worst_sample >= 0) judgement.worst_sample += before;
    for (auto& output : judgement.outputs) {
      if (output.sample >= 0) output.sample += before;
      const auto same = std::ranges::find(all.outputs, output.output, &Judgement::OutputError::output);
      if (same == all.outputs.end())
        all.outputs.push_back(output);
      else if (output.used > same->used)
        *same = output;
    }
    if (judged == static_cast<int>(count) || judgement.used > all.used) {
      judgement.outputs = std::move(all.outputs);
      all = std::move(judgement);
    }
  }
  if (judged == 0) return;
  answer.held_out_samples = judged;
  answer.held_out = std::move(all);
  answer.held_out_passed = passed;
}

}  // namespace ulpscope
