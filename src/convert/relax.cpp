#include "convert/relax.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "core/counted.h"
#include "core/messages.h"
#include "engine/cost.h"
#include "graph/layer_choice.h"
#include "precision/search.h"
#include "precision/search_space.h"
#include "precision/trade_off.h"
#include "precision/trials.h"

namespace ulpscope {
namespace {

/// Assignments that are looked at for single moves.
constexpr int kMoves = 2000;

/// The space of what may be raised: all that nothing was asked for.
SearchSpace make_space(const Network& network, const BuildOptions& build, const std::vector<TensorMap>& samples,
                       const Requests& requested) {
  auto asked = std::make_shared<Network>(network);
  SearchTask task;
  task.build = build;
  set_requests(*asked, requested);
  for (LayerId id : asked->all_layer_ids()) {
    if (requested[id]) (requested[id] == DataType::kFloat32 ? task.keep : task.lower).push_back(id);
  }
  return SearchSpace(asked, task, samples);
}

/// Errors do not count: what is raised only gains.
TradeOffPoint fastest(SearchSpace& space) {
  TradeOff trade_off(space, SquaredEffects(space.candidates().size(), {1.0, 0.0}));
  return trade_off.polish(trade_off.curve().front(), std::numeric_limits<double>::infinity(), kMoves);
}

/// Of the multiply-adds that could be lower, those that are not.
double share_in_float32(SearchSpace& space, const Levels& levels) {
  const Specialization& spec = space.specialization();
  const Assignment assignment = space.assignment(levels);
  double all = 0, high = 0;
  for (const LayerPlace& place : all_layers(spec)) {
    if (place.folded() || !place.numeric() || !has_precision(place.layer())) continue;
    const double multiply_adds = work_of(*place.spec, place.layer()).multiply_adds;
    all += multiply_adds;
    if (assignment.precision[place.id] == Precision::kFP32) high += multiply_adds;
  }
  return all > 0 ? high / all : 0;
}

}  // namespace

Relaxation relax_precisions(const std::shared_ptr<const Network>& network, const BuildOptions& build,
                            const std::vector<TensorMap>& samples, const Requests& requested,
                            const Criterion& criterion, std::vector<TensorMap> golden, bool infinities_equal) {
  SearchSpace space = make_space(*network, build, samples, requested);
  Relaxation result;
  result.time_low_us = space.time_us(space.lowest());
  result.time_high_us = space.time_us(space.highest());
  const TradeOffPoint found = fastest(space);
  if (!(found.time_us < result.time_low_us)) {
    log_info("[convert] --relax: no layer saves more time in float32 than it costs there");
    return result;
  }
  if (found.levels == space.highest() && space.options().lower.empty()) {
    log_warning(
        "[convert] --relax: on {} everything in float32 is faster ({:.4g} us) than these layers alone ({:.4g} us): "
        "they stay as they are; try the model as it is, or another --target",
        build.target, found.time_us, result.time_low_us);
    return result;
  }
  Trials& trials = space.trials();
  if (golden.empty())
    golden = trials.run(trials.full_precision(), /*keep=*/false);
  else
    check_golden_of(golden, criterion, infinities_equal, std::ssize(samples));
  result.judgement = criterion.judge(golden, trials.run(space.assignment(found.levels), /*keep=*/false));
  result.samples = static_cast<int>(samples.size());
  const std::string verdict = fmt::format("{:.4g} of the tolerance is used ({}, {})", result.judgement.used,
                                          criterion.description(), counted(std::ssize(samples), "sample"));
  std::vector<LayerId> raised;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < found.levels.size(); ++i) {
    if (found.levels[i] == 0) continue;
    raised.push_back(space.candidates()[i]);
    names.push_back(network->layer(raised.back()).name);
  }
  if (!result.judgement.passed()) {
    log_warning("[convert] --relax: with {} raised, {}{}{}: they stay as they are",
                counted(std::ssize(raised), "layer"), verdict, result.judgement.problem.empty() ? "" : ", ",
                result.judgement.problem);
    return result;
  }
  log_info("[convert] --relax: {} raised to float32, {:.4g} us instead of {:.4g} on {}; {}: {}",
           counted(std::ssize(raised), "layer"), found.time_us, result.time_low_us, build.target, verdict,
           fmt::join(names, ", "));
  result.raised = std::move(raised);
  result.time_us = found.time_us;
  result.cost_share = share_in_float32(space, found.levels);
  return result;
}

void add_raised_layers(const Network& network, const Relaxation& relaxation, AnswerFile& file) {
  if (relaxation.raised.empty()) return;
  Answer& answer = file.answer;
  for (const LayerId id : relaxation.raised) {
    const Layer& layer = network.layer(id);
    answer.kept.push_back(kept_layer(layer, Precision::kFP32, ReasonKind::kRequested,
                                     "raised by convert, since that saves time beside its neighbors"));
  }
  answer.message =
      fmt::format("{} layers are kept, {} of them since that saves time", answer.kept.size(), relaxation.raised.size());
  // What held before held for other layers.
  answer.search = relaxation.judgement;
  answer.search_samples = relaxation.samples;
  answer.held_out.reset();
  answer.held_out_samples = answer.held_out_passed = answer.joined_samples = answer.validation_samples = 0;
  answer.time_us = relaxation.time_us;
  answer.time_high_us = relaxation.time_high_us;
  answer.cost_share = relaxation.cost_share;
  answer.sets.clear();
}

}  // namespace ulpscope
