// What everything in the lowest precisions gives, without repairs: what a user has without an answer. Nothing is chosen
// by it here.
#include <algorithm>
#include <cmath>

#include "precision/local_errors.h"
#include "precision/search_phases.h"

namespace ulpscope {
namespace {

/// The first output, in the network's order, that fails.
std::string first_failing(const Network& network, const Judgement& judgement) {
  for (const TensorId id : network.outputs) {
    const auto found = std::ranges::find(judgement.outputs, network.tensor(id).name, &Judgement::OutputError::output);
    if (found != judgement.outputs.end() && !(found->used <= 1)) return found->output;
  }
  return "";
}

bool gives_non_finite(const Judgement& judgement) { return !judgement.problem.empty() || std::isinf(judgement.used); }

/// The first candidate that makes an infinity or a NaN of the exact values that it reads, in one sample.
LayerId first_overflow(const SearchState& search) {
  SearchSpace& space = search.space();
  const int worst = search.answer.lowest->judgement.worst_sample;
  Trials& trials = space.trials();
  LocalErrors errors(*search.current.network, space.low(), space.candidates(), trials.options(), trials.weights(),
                     LocalErrors::Yield::kSquares);
  for (const LocalError& each : errors.run(trials.inputs(worst >= 0 ? static_cast<std::size_t>(worst) : 0), {}).errors)
    if (!std::isfinite(each.error.cast(DataType::kFloat64).data<double>()[0])) return each.layer;
  return kNone;
}

/// As first_overflow, by what is known of all samples: where gradients say that it matters.
LayerId first_infinite_effect(const SearchState& search) {
  const auto& effects = search.layers.effects;
  const auto found = std::ranges::find_if(effects, [](const LayerEffect& each) { return std::isinf(each.effect); });
  return found == effects.end() ? kNone : found->layer;
}

void name_layer(SearchState& search, LayerId id) {
  if (id == kNone) return;
  const Layer& layer = search.current.network->layer(id);
  search.answer.lowest->layer = layer.name;
  search.answer.lowest->op = layer.op->name;
}

/// The network as it was, with what the user asked for alone.
std::unique_ptr<SearchSpace> plain_space(const SearchState& search) {
  const SearchData& data = search.data;
  std::vector<TensorMap> samples = data.samples;
  samples.insert(samples.end(), data.held_out.begin(), data.held_out.end());
  auto space = std::make_unique<SearchSpace>(data.network, search.options, samples, search.space().trials().weights());
  space->trials().set_workers(data.workers);
  for (const auto& [from, to] : search.samples.moves) space->trials().move_sample(from, to);
  return space;
}

/// What some samples give.
struct Judged {
  Judgement judgement;
  std::size_t samples = 0, passed = 0;
};

Judged run_low(SearchState& search, SearchSpace& space, std::size_t first, std::size_t count) {
  const TrialResult result = search.run(space, space.low(), first, count, false);
  Judged judged{result.judgement, count, result.judgement.passed() ? count : 0};
  if (result.judgement.passed() || result.judgement.worst_sample < 0) return judged;
  for (std::size_t s = 0; s < count; ++s) {
    const Judgement each = !result.each.empty()
                               ? result.each[s]
                               : search.judge(search.samples.golden_of(first + s, 1), {&result.outputs[s], 1});
    judged.passed += each.passed() ? 1 : 0;
  }
  return judged;
}

/// A trial like any other: where everything low is the answer, it was made.
Judged trial_low(SearchState& search, TrialKind kind) {
  SearchSpace& space = search.space();
  const Trial& trial = search.trial_of(space, {}, space.lowest(), kind);
  const std::size_t count = search.samples.of(kind).second;
  return {trial.judgement, count,
          trial.judgement.passed() ? count : static_cast<std::size_t>(std::max(0, trial.samples_passed))};
}

/// To what the samples in front of it gave, `before` of them.
void add(Judged& part, int before, std::optional<Judgement>& all) {
  Judgement& judgement = part.judgement;
  if (judgement.worst_sample >= 0) judgement.worst_sample += before;
  for (Judgement::OutputError& each : judgement.outputs)
    if (each.sample >= 0) each.sample += before;
  if (!all) {
    all = std::move(judgement);
    return;
  }
  for (const Judgement::OutputError& each : judgement.outputs) {
    const auto same = std::ranges::find(all->outputs, each.output, &Judgement::OutputError::output);
    if (same == all->outputs.end())
      all->outputs.push_back(each);
    else if (each.used > same->used)
      *same = each;
  }
  if (!(judgement.used > all->used)) return;
  judgement.outputs = std::move(all->outputs);
  all = std::move(judgement);
}

/// On the samples behind those that it was tried on.
void judge_others(SearchState& search) {
  Answer::Lowest& lowest = *search.answer.lowest;
  const SearchSamples& samples = search.samples;
  const auto first = static_cast<std::size_t>(lowest.samples);
  if (first == samples.all) return;
  compute_held_out_golden(search);
  const bool is_plain = search.repairs.words.empty() && search.repairs.cancellations.empty();
  const std::unique_ptr<SearchSpace> made = is_plain ? nullptr : plain_space(search);
  std::vector<Judged> parts;
  if (first < samples.searched)
    parts.push_back(run_low(search, is_plain ? search.space() : *made, first, samples.searched - first));
  for (const TrialKind kind : {TrialKind::kHoldOut, TrialKind::kUntouched, TrialKind::kUntouchedRest})
    if (const auto [begin, count] = samples.of(kind); count > 0)
      parts.push_back(is_plain ? trial_low(search, kind) : run_low(search, *made, begin, count));
  for (Judged& part : parts) {
    add(part, lowest.held_out_samples, lowest.held_out);
    lowest.held_out_samples += static_cast<int>(part.samples);
    lowest.held_out_passed += static_cast<int>(part.passed);
  }
  if (lowest.first_output.empty()) lowest.first_output = first_failing(*search.data.network, *lowest.held_out);
}

}  // namespace

void note_lowest(SearchState& search, const Judgement& judgement) {
  Answer::Lowest& lowest = search.answer.lowest.emplace();
  lowest.judgement = judgement;
  lowest.samples = static_cast<int>(search.samples.searched);
  lowest.first_output = first_failing(*search.current.network, judgement);
  if (gives_non_finite(judgement)) name_layer(search, first_overflow(search));
}

void finish_lowest(SearchState& search) {
  Answer& answer = search.answer;
  if (!answer.lowest || search.current.space == nullptr) return;
  if (!answer.lowest->layer.empty() && search.repairs.words.empty()) name_layer(search, first_infinite_effect(search));
  if (!search.verdict.ended.empty() || !answer.lowest->judgement.passed()) return;
  const Judgement last = search.verdict.last_held_out;
  try {
    judge_others(search);
  } catch (const LimitReached&) {  // Of time: it is said of the samples of the search alone.
  } catch (const SearchInterrupted&) {
  }
  search.verdict.last_held_out = last;
}

}  // namespace ulpscope
