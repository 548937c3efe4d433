// What a search says in the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "precision/close_choices.h"
#include "precision/explain.h"
#include "precision/fingerprint.h"
#include "precision/network_picture.h"
#include "precision/one_signed.h"
#include "precision/search_phases.h"
#include "ulpscope/log.h"

namespace ulpscope {

KeptLayer kept_layer(const Layer& layer, Precision precision, ReasonKind kind, std::string reason) {
  KeptLayer row{layer.name, std::string(layer.op->name), layer.nodes, precision_in(layer, precision)};
  row.reason.kind = kind;
  row.reason.text = std::move(reason);
  return row;
}

namespace {

Reason not_explained() {
  Reason reason;
  reason.kind = ReasonKind::kMeasured;
  reason.text = "no time was left to look for the reason";
  return reason;
}

void add_sensitivities(SearchState& search) {
  const auto& [effects, measured, groups, order, scale] = search.layers;
  for (std::size_t i = 0; i < effects.size(); ++i) {
    const Layer& layer = search.current.network->layer(effects[i].layer);
    search.answer.sensitivities.push_back(
        {layer.name, std::string(layer.op->name), effects[i].effect, measured[i] != 0});
  }
}

/// Why these candidates are kept.
std::vector<Reason> reasons_of(SearchState& search, std::span<const std::size_t> kept) {
  // Reasons take some forwards. Who interrupts does not wait for those of all samples.
  if (search.is_late(0.9)) return std::vector<Reason>(kept.size(), not_explained());
  const std::vector<LayerEffect>& effects = search.layers.effects;
  std::vector<LayerId> ids;
  std::vector<char> harmless;  // Overflows that no gradient and no trial saw.
  for (const std::size_t i : kept) {
    ids.push_back(search.space().candidates()[i]);
    harmless.push_back(i < effects.size() && effects[i].overflows && std::isfinite(effects[i].effect));
  }
  const bool one_sample = search.is_late(0.5) || search.verdict.interrupted;
  return explain_layers(search.space().trials(), search.space().low(), ids, one_sample ? 1 : search.samples.searched,
                        harmless);
}

/// How many other candidates share what was measured of this one.
std::size_t measured_beside(const SearchState& search, std::size_t candidate) {
  for (const auto& group : search.layers.groups)
    if (std::ranges::find(group, candidate) != group.end()) return group.size() - 1;
  return 0;
}

/// Why these candidates of a set are kept that accuracy does not ask for.
std::vector<Reason> savings_of(SearchState& search, const Levels& levels, std::span<const std::size_t> for_time) {
  if (for_time.empty()) return {};
  SearchSpace& space = search.space();
  const TimeModel& model = space.time_model();
  const double time = space.time_us(levels), all = space.time_us(*search.verdict.enough);
  const int casts = model.casts(space.assignment(levels)).count;
  const std::string together = fmt::format("; all {} that stay for time save {:.0f} % of it", for_time.size(),
                                           all > 0 ? 100 * (all - time) / all : 0);
  std::vector<Reason> reasons;
  for (const std::size_t i : for_time) {
    Levels without = levels;
    without[i] = 0;
    const int less = model.casts(space.assignment(without)).count - casts;
    const double saved = space.time_us(without) - time;
    std::string why = "faster so, beside its neighbors";
    if (less > 0)
      why = fmt::format("faster so: {} less", counted(less, "cast"));
    else if (saved > 0)
      why = fmt::format("faster so: {:.3g} us less", saved);
    Reason& reason = reasons.emplace_back();
    reason.kind = ReasonKind::kFaster;
    reason.low = space.precision(i, 0);
    reason.text = why + together;
  }
  return reasons;
}

/// Of all candidates above the format of the fewest bits.
std::vector<Reason> reasons_for_formats(const SearchState& search, const Levels& levels) {
  const auto& squares = search.formats.squares;
  std::vector<Reason> reasons;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == 0) continue;
    Reason& reason = reasons.emplace_back();
    reason.low = search.space().precision(i, 0);
    const double before = i < squares.size() ? squares[i][0] : 0, now = i < squares.size() ? squares[i][levels[i]] : 0;
    reason.text = fmt::format("rounding: its squared error is predicted to be {:.2g} of that in {}",
                              before > 0 ? now / before : 0, name_of(*reason.low));
  }
  return reasons;
}

void add_kept(SearchState& search, const Levels& levels) {
  SearchSpace& space = search.space();
  const Network& network = *search.current.network;
  const std::vector<LayerEffect>& effects = search.layers.effects;
  double squares = 0;
  bool infinite = false;
  for (const LayerEffect& e : effects) {
    infinite |= !std::isfinite(e.effect);
    squares += std::isfinite(e.effect) ? e.effect * e.effect : 0;
  }
  const std::optional<Levels>& enough = search.verdict.enough;
  std::vector<std::size_t> kept, for_time, for_accuracy;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == 0) continue;
    kept.push_back(i);
    (enough && (*enough)[i] == 0 ? for_time : for_accuracy).push_back(i);
  }
  const std::vector<Reason> reasons = search.rule().of_formats ? reasons_for_formats(search, levels)
                                                               : reasons_of(search, for_accuracy),
                            savings = savings_of(search, levels, for_time);
  auto reason = reasons.begin(), saving = savings.begin();
  for (const std::size_t i : kept) {
    const Layer& layer = network.layer(space.candidates()[i]);
    KeptLayer row = kept_layer(layer, space.precision(i, levels[i]), ReasonKind::kRounding, "");
    row.reason = std::ranges::binary_search(for_time, i) ? *saving++ : *reason++;
    if (i < effects.size()) {
      row.effect = effects[i].effect;
      row.reason.share = infinite      ? (std::isfinite(row.effect) ? 0.0 : 1.0)
                         : squares > 0 ? row.effect * row.effect / squares
                                       : 0;
      if (search.layers.measured[i] != 0 && row.reason.kind == ReasonKind::kRounding)
        row.reason.kind = ReasonKind::kMeasured;
      if (const std::size_t others = measured_beside(search, i); others > 0)
        row.reason.text +=
            fmt::format("; its effect is that of {} layers that were measured together, shared out", others + 1);
    }
    search.answer.kept.push_back(std::move(row));
    if (const LayerId id = space.raised_bias(levels, i); id != kNone)
      search.answer.kept.push_back(
          kept_layer(network.layer(id), space.precision(i, levels[i]), ReasonKind::kMeasured,
                     fmt::format("the bias of '{}'; no set passes where such biases stay lower", layer.name)));
  }
}

/// What costs nothing but its launch costs the same in every precision.
void warn_of_launches(const SearchState& search) {
  constexpr double kAlone = 0.95;
  const double share = search.space().time_model().launch_share(search.space().low());
  if (search.rule().may_stay_high && share >= kAlone)
    log_warning(fmt::format(
        "[search] {:.0f} % of the estimated time on {} is launch overhead, which no precision changes: no layer stays "
        "high for time there, and estimates tell sets apart by their casts alone; try larger inputs, or another "
        "--target",
        100 * share, search.options.build.target));
}

/// Keeps a layer that the search had no choice about; null: it is kept already, for the first thing that was said.
KeptLayer* keep_besides(SearchState& search, const Layer& layer, std::string why) {
  Answer& answer = search.answer;
  if (std::ranges::find(answer.kept, layer.name, &KeptLayer::name) != answer.kept.end()) return nullptr;
  ++answer.candidates;
  answer.kept.push_back(kept_layer(layer, search.options.ladder.back(), ReasonKind::kSingular, std::move(why)));
  return &answer.kept.back();
}

void add_cancellations(SearchState& search) {
  const Network& network = *search.current.network;
  for (const SingularCancellation& each : search.repairs.cancellations)
    for (const LayerId id : each.layers) {
      const std::string why = "cancellation ahead of a singular function: " + text_of(network, each);
      KeptLayer* row = keep_besides(search, network.layer(id), why);
      if (row == nullptr) continue;
      row->reason.tensor = network.tensor(network.layer(each.difference).outputs[0]).name;
      row->reason.largest = each.loss;
    }
}

void add_kept_by_repairs(SearchState& search) {
  const Network& network = *search.current.network;
  const std::string_view low = name_of(Precision::kFP16);
  for (const Repair& repair : search.answer.repairs)
    for (const std::string& name : repair.keeps) {
      const LayerId id = search.data.network->find_layer(name);
      const auto has = [&](const auto& list) { return std::ranges::find(list, id) != list.end(); };
      if (!has(search.options.keep) && !has(search.options.lower))
        keep_besides(search, network.layer(network.find_layer(name)),
                     fmt::format("where data are 0, a constant is all that is left, and {} does not hold it with the "
                                 "scaling of '{}'",
                                 low, repair.name));
    }
}

/// Movement layers whose values are stored wider than in the lowest precisions.
void add_following(SearchState& search, const Assignment& chosen) {
  const auto& lowest = search.space().low().storage;
  const Specialization& spec = search.space().specialization();
  for (const auto& [id, layer] : spec.network->layers.items())
    if (layer.op->precision == PrecisionRule::kMovement && !spec.folded[id] &&
        std::ranges::any_of(present(layer.outputs),
                            [&](TensorId to) { return size_of(chosen.storage[to]) > size_of(lowest[to]); }))
      search.answer.following.push_back(layer.name);
}

/// What is told of the best set.
void add_best(SearchState& search, const Levels& levels) {
  SearchSpace& space = search.space();
  Answer& answer = search.answer;
  answer.cost_share = space.cost_share(levels);
  answer.time_us = space.time_us(levels);
  const Assignment chosen = space.assignment(levels);
  const TimeModel::Casts casts = space.time_model().casts(chosen);
  answer.casts = Answer::Casts{casts.count, casts.total_us};
  add_following(search, chosen);
  add_kept(search, levels);
  if (search.rule().of_formats) note_bits(search, levels);
  add_cancellations(search);
  add_kept_by_repairs(search);
  add_held_out(search, levels);
  // Whatever it was tried for: the set of an answer may be known from measuring a layer.
  for (const Trial& trial : answer.trials)
    if (trial.joined == search.samples.joined && !is_held_out(trial.kind) && trial.repairs == search.repairs.words &&
        trial.raised == space.names(levels))
      answer.search = trial.judgement;
}

void add_figures(SearchState& search) {
  const SearchTask& options = search.options;
  Answer& answer = search.answer;
  answer.objective = options.objective;
  answer.criterion = search.criterion.description();
  // Of a metric whose threshold nobody gave, its name says all.
  if (!options.has_tolerance) answer.criterion.resize(std::min(answer.criterion.find(' '), answer.criterion.size()));
  answer.search_samples = static_cast<int>(search.samples.searched);
  answer.held_out_samples = static_cast<int>(search.samples.held_out());
  answer.joined_samples = search.samples.joined;
  for (const NamedTensor& input : search.data.samples.front()) answer.input_shapes[input.name] = input.tensor.shape();
  answer.target = options.build.target;
  for (Trial& trial : answer.trials)
    if (trial.repairs != search.repairs.words && !is_held_out(trial.kind)) trial.kind = TrialKind::kRepair;
  if (search.current.space == nullptr) return;
  SearchSpace& space = search.space();
  if (is_target_file(answer.target)) answer.target_hash = hash_of_text(space.time_model().target().figures());
  answer.candidates = static_cast<int>(space.layer_count());
  answer.time_low_us = space.time_us(space.lowest());
  answer.time_high_us = space.highest_time_us();
  warn_of_launches(search);
  add_sensitivities(search);
  const Assignment chosen = search.verdict.best ? space.assignment(*search.verdict.best) : space.low();
  OneSignedProducts one_signed(space.specialization(), chosen, search.options.build.accumulation);
  CloseChoices choices(space.specialization(), chosen);
  const Levels* const best = search.verdict.best ? &*search.verdict.best : nullptr;
  answer.network = network_picture(space, best, std::span(search.data.samples).first(search.is_late(0.9) ? 0 : 1),
                                   [&](TensorId tensor, const Tensor& values) {
                                     one_signed.add(tensor, values);
                                     choices.add(tensor, values);
                                   });
  one_signed.warn();
  if (best != nullptr && !search.is_late(0.9)) choices.warn(space.trials());
  if (search.verdict.best) add_best(search, *search.verdict.best);
}

Answer::Verdict verdict_of(const SearchState& search) {
  using enum Answer::Verdict;
  const Verdict& verdict = search.verdict;
  switch (verdict.failure) {
    case Verdict::Failure::kNotReachable:
      return kNotReachable;
    case Verdict::Failure::kFailsValidation:
    case Verdict::Failure::kFailsUntouched:
      return kFailsHeldOut;
    case Verdict::Failure::kNothingProven:
      return kUnverified;
    case Verdict::Failure::kNone:
      break;
  }
  const bool is_proven = verdict.proof == Verdict::Proof::kUntouched || search.samples.held_out() == 0;
  return verdict.best && is_proven ? kFound : kUnverified;
}

std::string sentence_where_found(SearchState& search, const std::string& after) {
  const Answer& answer = search.answer;
  const std::string_view highest = name_of(search.options.ladder.back());
  if (answer.bits)
    return fmt::format("{:.4g} bits per weight: {:.1f} MB for the {} weights of {} layers{}", answer.bits->per_weight(),
                       static_cast<double>(answer.bits->bits()) / 8e6, answer.bits->weights(),
                       answer.bits->layers.size(), after);
  if (answer.kept.empty()) return "No layer needs more precision" + after;
  const auto for_time = std::ranges::count_if(
      answer.kept, [](const KeptLayer& layer) { return layer.reason.kind == ReasonKind::kFaster; });
  if (for_time == 0)
    return fmt::format("{} of {} layers need more precision{}", answer.kept.size(), answer.candidates, after);
  if (for_time == std::ssize(answer.kept))
    return fmt::format("No layer needs more precision; {} of {} layers are faster in {}{}", for_time, answer.candidates,
                       highest, after);
  return fmt::format("{} of {} layers need more precision, {} more are faster in {}{}",
                     std::ssize(answer.kept) - for_time, answer.candidates, for_time, highest, after);
}

std::string sentence(SearchState& search) {
  const Answer& answer = search.answer;
  const Verdict& verdict = search.verdict;
  const std::string after = verdict.ended.empty() ? "" : fmt::format("; the search ended at {}", verdict.ended);
  const std::string_view highest = name_of(search.options.ladder.back());
  switch (verdict.failure) {
    case Verdict::Failure::kNotReachable:
      if (answer.bits && answer.bits->budget > 0)
        return fmt::format(
            "Not reachable: with at most {:g} bits per weight the outputs use {:.4g} of the tolerance at '{}'; try "
            "more bits, or --objective bits, which says how many it takes",
            answer.bits->budget, answer.search.used, answer.search.worst_output);
      return fmt::format(
          "Not reachable: with all {} layers raised the outputs still use {:.4g} of the tolerance at '{}' (limit: "
          "{:g}); it is too tight for {}, or layers that matter were asked to stay low{}",
          answer.candidates, answer.search.used, answer.search.worst_output, answer.margin, highest,
          search.options.ladder.back() == Precision::kFP32
              ? ""
              : "; try float32, too, for the layers that need it (--precision ... float32)");
    case Verdict::Failure::kFailsUntouched:
      return fmt::format(
          "{} of {} layers pass the samples of the search, but {} of {} untouched ones fail ({:.4g} of the "
          "tolerance); try more samples{}",
          answer.kept.size(), answer.candidates, answer.held_out_samples - answer.held_out_passed,
          answer.held_out_samples, answer.held_out ? answer.held_out->used : 0, after);
    case Verdict::Failure::kFailsValidation:
      return fmt::format("The held-out samples fail whatever is raised ({:.4g} of the tolerance){}",
                         verdict.last_held_out.used, after);
    case Verdict::Failure::kNothingProven:
      return fmt::format("No set with lower layers was proven: everything stays in {}{}", highest, after);
    case Verdict::Failure::kNone:
      break;
  }
  if (answer.verdict == Answer::Verdict::kFound) return sentence_where_found(search, after);
  if (!verdict.best) return "No passing set yet" + after;
  return fmt::format(
      "{} of {} layers pass the search samples, but {}{}", answer.kept.size(), answer.candidates,
      verdict.last_held_out.passed() ? "the held-out samples were not checked" : "not the held-out samples", after);
}

}  // namespace

void report(SearchState& search) {
  search.answer.verdict = verdict_of(search);
  search.watch.enter(Stage::kExplaining);
  add_figures(search);
  search.watch.finish();
  search.answer.message = sentence(search);
  search.answer.seconds = search.watch.elapsed();
}

}  // namespace ulpscope
