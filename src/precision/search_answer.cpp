// What a search says in the end.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "precision/explain.h"
#include "precision/fingerprint.h"
#include "precision/network_picture.h"
#include "precision/search_process.h"
#include "ulpscope/log.h"

namespace ulpscope {

KeptLayer kept_layer(const Layer& layer, Precision precision, ReasonKind kind, std::string reason) {
  KeptLayer row{layer.name, std::string(layer.op->name), layer.nodes, precision};
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

}  // namespace

void Search::finish(Answer& answer) {
  answer.repairs = repairs_;
  answer.objective = options_.objective;
  answer.criterion = criterion_.description();
  answer.margin = margin_;
  answer.search_samples = static_cast<int>(searched_);
  answer.held_out_samples = static_cast<int>(held_out());
  answer.sets = sets_;
  answer.curve = curve_;
  answer.joined_samples = joined_;
  answer.target = options_.build.target;
  answer.evaluations = evaluations_;
  answer.held_out_evaluations = held_out_evaluations_;
  answer.held_out_seconds = held_out_seconds_;
  answer.trials = trials_;
  for (Trial& trial : answer.trials)
    if (trial.repairs != repair_words_ && samples_of(trial.kind).first == 0) trial.kind = "repair";
  if (space_ == nullptr) return;
  if (is_target_file(answer.target)) answer.target_hash = hash_of_text(space_->time_model().target().figures());
  answer.candidates = static_cast<int>(space_->layer_count());
  answer.time_low_us = space_->time_us(space_->lowest());
  answer.time_high_us = space_->highest_time_us();
  warn_of_launches();
  for (std::size_t i = 0; i < effects_.size(); ++i) {
    const Layer& layer = network_->layer(effects_[i].layer);
    answer.sensitivities.push_back({layer.name, std::string(layer.op->name), effects_[i].effect, measured_[i] != 0});
  }
  answer.network = network_picture(*space_, std::span(data_.samples).first(is_late(0.9) ? 0 : 1));
  if (!best_) return;
  const Levels& levels = *best_;
  answer.cost_share = space_->cost_share(levels);
  answer.time_us = space_->time_us(levels);
  const TimeModel::Casts casts = space_->casts(levels);
  answer.casts = Answer::Casts{casts.count, casts.total_us};
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
  // Reasons take some forwards. Who interrupts does not wait for those of all samples.
  const bool late = is_late(0.9);
  const std::vector<Reason> reasons = late ? std::vector<Reason>(kept.size(), not_explained())
                                           : explain_layers(space_->trials(), space_->low(), kept,
                                                            is_late(0.5) || interrupted_ ? 1 : searched_, harmless);
  std::size_t k = 0;
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (levels[i] == 0) continue;
    const Layer& layer = network_->layer(space_->candidates()[i]);
    KeptLayer row = kept_layer(layer, space_->precision(i, levels[i]), ReasonKind::kRounding, "");
    row.reason = reasons[k++];
    if (i < effects_.size()) {
      row.effect = effects_[i].effect;
      row.reason.share = infinite      ? (std::isfinite(row.effect) ? 0.0 : 1.0)
                         : squares > 0 ? row.effect * row.effect / squares
                                       : 0;
      if (measured_[i] != 0 && row.reason.kind == ReasonKind::kRounding) row.reason.kind = ReasonKind::kMeasured;
    }
    answer.kept.push_back(std::move(row));
    const LayerId id = space_->raised_bias(levels, i);
    if (id == kNone) continue;
    answer.kept.push_back(
        kept_layer(network_->layer(id), space_->precision(i, levels[i]), ReasonKind::kMeasured,
                   fmt::format("the bias of '{}'; no set passes where such biases stay lower", layer.name)));
  }
  add_cancellations(answer);
  add_held_out(answer, levels);
  // Whatever it was tried for: the set of an answer may be known from measuring a layer.
  for (const Trial& trial : trials_)
    if (trial.joined == joined_ && samples_of(trial.kind).first == 0 && trial.repairs == repair_words_ &&
        trial.raised == space_->names(levels))
      answer.search = trial.judgement;
}

/// Of groups that were not measured, only the roofline is known.
void Search::warn_of_unmeasured_groups() const {
  const Target& target = space_->time_model().target();
  if (target.timed == nullptr || target.timed->empty()) return;
  TimeModel::Coverage all;
  for (const Assignment& assignment : {space_->low(), space_->assignment(space_->highest())}) {
    const TimeModel::Coverage each = space_->time_model().coverage(assignment);
    all.groups += each.groups;
    all.measured += each.measured;
  }
  if (all.measured == all.groups) return;
  const std::string text = fmt::format(
      "[target] {} has measured times of {} of {} groups of this model (all in the lowest and all in the highest "
      "precision); the others are estimated from its rates",
      options_.build.target, all.measured, all.groups);
  // Boundaries and repairs make groups of their own.
  if (2 * all.measured >= all.groups)
    log_info(text);
  else
    log_warning(text + "; try `ulpscope target measure` with this model, its inputs' shapes and these precisions");
}

/// What costs nothing but its launch costs the same in every precision.
void Search::warn_of_launches() const {
  constexpr double kAlone = 0.95;
  const double share = space_->time_model().launch_share(space_->low());
  if (options_.objective == Objective::kFastest && share >= kAlone)
    log_warning(fmt::format(
        "[search] {:.0f} % of the estimated time on {} is launch overhead, which no precision changes: which layers "
        "are fast is decided by casts and fusions alone; try larger inputs, another --target, or --objective smallest",
        100 * share, options_.build.target));
}

/// Each layer once, with the first that it is kept for.
void Search::add_cancellations(Answer& answer) const {
  for (const SingularCancellation& each : cancellations_) {
    for (const LayerId id : each.layers) {
      const Layer& layer = network_->layer(id);
      if (std::ranges::find(answer.kept, layer.name, &KeptLayer::name) != answer.kept.end()) continue;
      KeptLayer row = kept_layer(layer, options_.ladder.back(), ReasonKind::kSingular,
                                 "cancellation ahead of a singular function: " + text_of(*network_, each));
      row.reason.tensor = network_->tensor(network_->layer(each.difference).outputs[0]).name;
      row.reason.largest = each.loss;
      answer.kept.push_back(std::move(row));
      ++answer.candidates;
    }
  }
}

std::string Search::sentence(const Answer& answer, const std::string& ended) const {
  const std::string after = ended.empty() ? "" : fmt::format("; the search ended at {}", ended);
  const std::string where = fmt::format("'{}'", answer.search.worst_output);
  switch (answer.verdict) {
    case Answer::Verdict::kFound:
      if (answer.kept.empty()) return "No layer needs more precision" + after;
      if (options_.objective == Objective::kFastest && best_ == space_->highest())
        return fmt::format("Stay in {}: nothing that passes is faster than everything in {} ({:.4g} us on {}){}",
                           name_of(options_.ladder.back()), name_of(options_.ladder.back()), answer.time_us,
                           answer.target, after);
      return fmt::format("{} of {} layers need more precision{}", answer.kept.size(), answer.candidates, after);
    case Answer::Verdict::kNotReachable:
      return fmt::format(
          "Not reachable: with all {} layers raised the outputs still use {:.4g} of the tolerance at {} (limit: {:g}); "
          "it is too tight for {}, or layers that matter were asked to stay low",
          answer.candidates, answer.search.used, where, answer.margin, name_of(options_.ladder.back()));
    case Answer::Verdict::kFailsHeldOut:
      if (fails_untouched_)
        return fmt::format(
            "{} of {} layers pass the samples of the search, but {} of {} untouched ones fail ({:.4g} of the "
            "tolerance); try more samples{}",
            answer.kept.size(), answer.candidates, answer.held_out_samples - answer.held_out_passed,
            answer.held_out_samples, answer.held_out ? answer.held_out->used : 0, after);
      return fmt::format("The held-out samples fail whatever is raised ({:.4g} of the tolerance){}",
                         last_held_out_.used, after);
    case Answer::Verdict::kUnverified:
      break;
  }
  if (!best_) return fmt::format("No passing set yet{}", after);
  if (nothing_proven_)
    return fmt::format("No set with lower layers was proven: everything stays in {}{}", name_of(options_.ladder.back()),
                       after);
  if (!last_held_out_.passed())
    return fmt::format("{} of {} layers pass the search samples, but not the held-out samples{}", answer.kept.size(),
                       answer.candidates, after);
  return fmt::format("{} of {} layers pass the search samples, but the held-out samples were not checked{}",
                     answer.kept.size(), answer.candidates, after);
}

}  // namespace ulpscope
