#include "precision/search.h"

#include <fmt/format.h>

#include "core/messages.h"
#include "engine/fixed_types.h"
#include "engine/quantized_choices.h"
#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// Often nothing needs raising, and then nothing needs predicting. Fused layers, too, may lose nothing together where
/// each by itself does.
bool lowest_suffices(SearchState& search) {
  do {
    search.show(Stage::kLowest);
    Levels levels = search.space().lowest();
    search.expect({{levels, TrialKind::kHoldOut}});
    if (!search.passes(levels, TrialKind::kSearch)) return false;
    if (search.rule().may_stay_high && !faster_than_lowest(search, levels)) return false;
    search.verdict.best = levels;
    if (passes_held_out(search, levels)) {
      search.verdict.proof = Verdict::Proof::kValidated;
      return true;
    }
  } while (join_failing_sample(search));
  return false;
}

/// The best set that passes the samples of the search and of validation, if there is one.
void choose(SearchState& search) {
  if (search.rule().of_formats) {
    search.rule().find(search);
    return;
  }
  if (search.samples.joined > 0 || !lowest_suffices(search)) {
    if (search.layers.effects.empty()) predict(search);
    order(search);
    search.rule().find(search);
  }
  if (search.verdict.holds() && search.space().highest_level() > 1 && !search.rule().may_stay_high) lower_rungs(search);
  if (search.verdict.holds() && search.options.shrink) shrink(search);
  if (search.verdict.failure == Verdict::Failure::kNotReachable) search.verdict.best = search.space().highest();
}

/// Why the first product lacks a format that is allowed; empty where each has them all.
std::string why_no_format(SearchState& search) {
  const auto spec = search.space().trials().specialization();
  const QuantizedChoices quantized(*spec, search.options.build);
  for (const auto& [l, layer] : spec->network->layers.items()) {
    if (!is_product(layer.op->function)) continue;
    for (const Precision p : search.options.build.enabled.members()) {
      const std::string reason = is_float(p) ? "" : quantized.refusal(*spec, l, p);
      if (!reason.empty())
        return fmt::format(": layer '{}' ({}) has no {}, since {}", layer.name, layer.op->name, name_of(p), reason);
    }
  }
  return {};
}

[[noreturn]] void refuse_without_candidates(SearchState& search) {
  const std::string what = "[search] there is nothing to search: no layer would run in lower precision";
  if (const auto why = why_types_are_fixed(*search.space().trials().specialization()))
    throw invalid_argument("{}{}", what, *why);
  throw invalid_argument("{}{}; try --fp16, --bf16 or --int8 (with calibration), or fewer names in --keep and --lower",
                         what, why_no_format(search));
}

void run_phases(SearchState& search) {
  prepare(search);
  repair(search);
  keep_cancellations(search);
  if (search.space().candidates().empty()) refuse_without_candidates(search);
  Verdict& verdict = search.verdict;
  do {
    choose(search);
    drop_useless_repairs(search);
    if (verdict.holds() && passes_untouched(search, *verdict.best)) verdict.proof = Verdict::Proof::kUntouched;
  } while (verdict.proof == Verdict::Proof::kValidated && take_untouched(search));
  if (verdict.proof == Verdict::Proof::kUntouched) prove_sets(search);
}

}  // namespace

Answer search_precisions(const SearchData& data, const Criterion& criterion, const SearchTask& options,
                         Journal& journal, const SearchObserver& observer) {
  SearchState search(data, criterion, options, journal, observer);
  Verdict& verdict = search.verdict;
  try {
    run_phases(search);
  } catch (const LimitReached& limit) {
    verdict.ended = limit.what;
    if (search.stage != Stage::kSearching) verdict.ended += fmt::format(", while {}", text_of(search.stage));
    verify_best(search);
  } catch (const SearchInterrupted& interrupted) {
    verdict.ended = interrupted.what();
    verdict.interrupted = true;
    // What is left to do is done here, whoever is gone.
    if (search.current.space != nullptr) search.space().trials().set_workers(nullptr);
  }
  if (!verdict.best && verdict.failure == Verdict::Failure::kNone && search.current.space != nullptr &&
      !verdict.ended.empty()) {
    forget_repairs(search);
    verdict.best = search.space().highest();
    verdict.failure = Verdict::Failure::kNothingProven;
  }
  finish_lowest(search);
  report(search);
  return std::move(search.answer);
}

}  // namespace ulpscope
