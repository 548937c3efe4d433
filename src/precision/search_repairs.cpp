// What a search does before it raises layers: golden outputs, and repairs, which cost no precision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "calibration/equalize.h"
#include "calibration/region_scaling.h"
#include "precision/repair.h"
#include "precision/search_phases.h"
#include "runtime/memory_limit.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Its floats times 2; nothing where it has none.
std::optional<TensorMap> doubled_sample(const TensorMap& sample) {
  TensorMap result = sample;
  bool any = false;
  for (NamedTensor& input : result) {
    if (!is_floating(input.tensor.type())) continue;
    Tensor doubled =
        input.tensor.type() == DataType::kFloat32 ? input.tensor.clone() : input.tensor.cast(DataType::kFloat32);
    for (std::int64_t i = 0; i < doubled.size(); ++i) doubled.data<float>()[i] *= 2;
    input.tensor = input.tensor.type() == DataType::kFloat32 ? std::move(doubled) : doubled.cast(input.tensor.type());
    any = true;
  }
  return any ? std::optional(std::move(result)) : std::nullopt;
}

/// Those to search on first.
std::vector<TensorMap> all_samples(const SearchData& data) {
  std::vector<TensorMap> samples = data.samples;
  samples.insert(samples.end(), data.held_out.begin(), data.held_out.end());
  return samples;
}

/// Of groups that were not measured, only the roofline is known.
void warn_of_unmeasured_groups(const SearchState& search) {
  SearchSpace& space = search.space();
  const Target& target = space.time_model().target();
  if (target.timed == nullptr || target.timed->empty()) return;
  TimeModel::Coverage all;
  for (const Assignment& assignment : {space.low(), space.assignment(space.highest())}) {
    const TimeModel::Coverage each = space.time_model().coverage(assignment);
    all.groups += each.groups;
    all.measured += each.measured;
  }
  if (all.measured == all.groups) return;
  const std::string text = fmt::format(
      "[target] {} has measured times of {} of {} groups of this model (all in the lowest and all in the highest "
      "precision); the others are estimated from its rates",
      search.options.build.target, all.measured, all.groups);
  // Boundaries and repairs make groups of their own.
  if (2 * all.measured >= all.groups)
    log_info(text);
  else
    log_warning(text + "; try `ulpscope target measure` with this model, its inputs' shapes and these precisions");
}

void warn_of_types_in_file(const SearchState& search) {
  const Network& network = *search.current.network;
  const std::vector<LayerId>& candidates = search.space().candidates();
  const auto typed = std::ranges::count_if(candidates, [&](LayerId id) {
    if (!network.layers.contains(id)) return false;  // Inside of a body.
    return std::ranges::any_of(network.layer(id).outputs, [&](TensorId output) {
      if (output == kNone) return false;
      const DataType type = search.space().specialization().type(output);
      return type == DataType::kFloat16 || type == DataType::kBFloat16;
    });
  });
  if (typed > 0)
    log_warning(
        fmt::format("[search] the file itself stores the results of {} of {} layers in float16 or bfloat16: so do the "
                    "golden outputs, and no search sees what that costs; try the float32 model",
                    typed, candidates.size()));
}

bool has(const Assignment& assignment, Precision precision) {
  return std::ranges::find(assignment.precision, precision) != assignment.precision.end();
}

Assignment in_fp16(SearchSpace& space) { return space.assignment(space.raised_to(Precision::kFP16)); }

/// Of the samples of the search, `count` of them, or of all.
std::vector<TensorMap> outputs_of(SearchState& search, Trials& trials, const Assignment& assignment,
                                  std::size_t count) {
  return trials.run(assignment, 0, count, false, [&] { search.check_limits(); });
}

std::vector<TensorMap> exact_outputs(SearchState& search, SearchSpace& space, std::size_t count) {
  return outputs_of(search, space.trials(), space.trials().full_precision(), count);
}

TrialResult run_low(SearchState& search, SearchSpace& space) {
  return search.run(space, space.low(), 0, search.samples.searched, true);
}

/// Of the tolerance, by everything in the lowest precisions.
double low_use(SearchState& search) {
  if (!search.repairs.low) search.repairs.low = run_low(search, search.space());
  return search.repairs.low->judgement.used;
}

/// Samples of the search whose floats are twice as large, with their float32 outputs; none where nothing can be judged
/// against these.
const SearchData& doubled_data(SearchState& search) {
  constexpr std::size_t kMost = 4;
  if (search.repairs.doubled) return *search.repairs.doubled;
  SearchData& doubled = search.repairs.doubled.emplace();
  const std::vector<TensorMap>& samples = search.data.samples;
  for (const TensorMap& sample : std::span(samples).first(std::min(kMost, samples.size())))
    if (auto twice = doubled_sample(sample)) doubled.samples.push_back(std::move(*twice));
  if (doubled.samples.empty()) return doubled;
  Trials exact(search.data.network, search.options.build, doubled.samples, search.space().trials().weights());
  exact.set_memory_limit(search.options.memory_limit);
  doubled.golden = outputs_of(search, exact, exact.full_precision(), exact.num_samples());
  for (const TensorMap& outputs : doubled.golden)
    for (const NamedTensor& output : outputs)
      if (const NonFinite found = count_non_finite(output.tensor);
          search.criterion.judges(output.name) && (found.nan != 0 || found.inf != 0))
        doubled.samples.clear();
  return doubled;
}

/// Of the tolerance, by these; nothing (0) where there are none.
double use_on_doubled(SearchState& search, SearchSpace& space, const Assignment& assignment) {
  const SearchData& doubled = doubled_data(search);
  if (doubled.samples.empty()) return 0;
  Trials trials(space.trials().shared_network(), space.trials().options(), doubled.samples, space.trials().weights());
  trials.set_memory_limit(search.options.memory_limit);
  return search.judge(doubled.golden, outputs_of(search, trials, assignment, trials.num_samples())).used;
}

/// Whether data of twice the magnitude may lose by a repair: `used` by the samples with it, `doubled` by their doubles,
/// and by these without it. What was finite stays so, and a double loses no more than either.
bool bears_doubled(const SearchState& search, double used, double doubled, double doubled_before) {
  if (std::isinf(used)) return true;  // Something else is left to be mended.
  return std::isfinite(doubled) &&
         doubled <= std::max({kRepairNoise * doubled_before, kRepairNoise * used, search.answer.margin});
}

using IsHarmless = std::function<bool(SearchSpace&, std::span<const Repair>)>;

/// Goes on with the repaired network if `is_harmless` says so of it.
bool accept(SearchState& search, std::span<const Repair> chosen, const IsHarmless& is_harmless) {
  RepairedNetwork repaired = with_repairs(search, search.current, chosen);
  if (!is_harmless(*repaired.space, chosen)) return false;
  search.answer.repairs.insert(search.answer.repairs.end(), chosen.begin(), chosen.end());
  go_on_with(search, std::move(repaired));
  return true;
}

/// All of them, or else those that are harmless, by halves.
void accept_repairs(SearchState& search, std::span<const Repair> found, const IsHarmless& is_harmless) {
  if (accept(search, found, is_harmless) || found.size() == 1) return;
  const std::size_t half = found.size() / 2;
  accept_repairs(search, found.first(half), is_harmless);
  accept_repairs(search, found.subspan(half), is_harmless);
}

/// Constants that only need clamping. Kept if the fp32 outputs stay where they are, with room for larger data.
void repair_constants(SearchState& search) {
  SearchSpace& space = search.space();
  const auto spec = space.trials().specialization();
  for (const Repair& note : find_scale_shifts(*spec, space.low())) search.answer.repairs.push_back(note);
  if (!search.options.repair) return;
  const std::vector<Repair> clamps = find_clamps(*spec, space.low());
  if (clamps.empty()) return;
  search.show(Stage::kConstants);
  // A mask of -inf does what one of -3.4e38 does, unless it becomes NaN, or int8 takes its scale from it.
  if (std::ranges::none_of(space.low().precision, is_quantized) && std::isfinite(low_use(search))) return;
  accept_repairs(search, clamps, [&](SearchSpace& clamped, std::span<const Repair> chosen) {
    constexpr double kHarmless = 0.01;  // Of the tolerance.
    const auto is_harmless = [&](SearchSpace& each) {
      return search.judge(search.samples.golden, exact_outputs(search, each, search.samples.searched))
          .passed(kHarmless * search.answer.margin);
    };
    return is_harmless(clamped) && is_harmless(*with_repairs(search, search.current, tightened(chosen)).space);
  });
}

/// Channels that one int8 scale does not suit. Kept if the fp32 outputs stay the same to the bit, and larger data lose
/// nothing by it.
void equalize(SearchState& search) {
  const Assignment& low = search.space().low();
  if (!search.options.repair || std::ranges::none_of(low.precision, is_quantized)) return;
  Trials& trials = search.space().trials();
  const auto spec = trials.specialization();
  const std::vector<ChannelAxis> tensors = equalizable_tensors(*spec, low);
  if (tensors.empty()) return;
  search.show(Stage::kChannels);
  std::vector<Repair> found;
  const auto ranges = channel_ranges(*search.current.network, tensors, search.data.samples,
                                     search.space().trials().range_options(), trials.weights());
  for (const Equalization& each : find_equalizations(*spec, low, ranges, search.current.scales))
    found.push_back(repair_of(each));
  if (found.empty()) return;
  // Powers of two are exact unless values overflow or become subnormal: one sample shows whether the layers around take
  // them as they should, and every trial is judged by the golden outputs anyway.
  const bool golden_is_ours = search.data.golden.empty() && search.current.network == search.data.network;
  const std::vector<TensorMap> before =
      golden_is_ours ? std::vector<TensorMap>{search.samples.golden.front()} : exact_outputs(search, search.space(), 1);
  const double doubled_before = use_on_doubled(search, search.space(), low);
  std::optional<TrialResult> result;
  accept_repairs(search, found, [&](SearchSpace& space, std::span<const Repair>) {
    if (!same_bits(before, exact_outputs(search, space, 1))) return false;
    TrialResult trial = run_low(search, space);
    const double doubled = use_on_doubled(search, space, space.low());
    if (!bears_doubled(search, trial.judgement.used, doubled, doubled_before)) return false;
    result = std::move(trial);
    return true;
  });
  if (result) search.repairs.low = std::move(result);
}

/// Regions whose tensors leave the range of fp16. Kept if the fp32 outputs stay the same to the bit, and fp16 gains by
/// it: where layers are to leave int8 for fp16, everything on that rung, since int8 knows no overflow that it would
/// mend. Scales of int8 move with the tensors, so its integers stay what they are, and so does the calibration.
void scale_regions(SearchState& search) {
  SearchSpace& first = search.space();
  const Assignment fp16 = in_fp16(first);
  if (!search.options.repair || !has(fp16, Precision::kFP16)) return;
  search.show(Stage::kRegions);
  if (low_use(search) <= search.answer.margin) return;
  const std::size_t samples = search.samples.searched;
  const auto use_of = [&](SearchSpace& space) {
    return search.judge(search.samples.golden, outputs_of(search, space.trials(), in_fp16(space), samples)).used;
  };
  const bool fp16_is_low = std::ranges::equal(fp16.precision, first.low().precision);
  const double before = fp16_is_low ? low_use(search) : use_of(first);
  if (before <= search.answer.margin) return;
  Trials& trials = first.trials();
  const RegionScaling found =
      find_region_scaling(*trials.specialization(), fp16, search.data.samples, search.space().trials().range_options(),
                          trials.weights(), search.current.scales, search.options.build.backend);
  for (const std::string& sentence : found.beyond) log_info("[repair] " + sentence);
  if (found.regions.empty()) return;
  const std::vector<TensorMap> exact = exact_outputs(search, first, samples);
  const double doubled_before = use_on_doubled(search, first, fp16);
  accept_repairs(search, found.regions, [&](SearchSpace& space, std::span<const Repair>) {
    if (!same_bits(exact, exact_outputs(search, space, samples))) return false;
    // Where infinities are left, others are gone: the regions are independent of each other.
    const double used = use_of(space);
    if (!(used < before) && !(std::isinf(used) && std::isinf(before))) return false;
    return bears_doubled(search, used, use_on_doubled(search, space, in_fp16(space)), doubled_before);
  });
}

}  // namespace

void prepare(SearchState& search) {
  const SearchTask& options = search.options;
  search.current.network = search.data.network;
  search.current.scales = options.build.scales;
  search.show(Stage::kGolden);
  search.current.space =
      std::make_unique<SearchSpace>(search.data.network, options, all_samples(search.data), search.data.weights);
  Trials& trials = search.space().trials();
  trials.set_workers(search.data.workers);
  warn_of_unmeasured_groups(search);
  const Assignment exact = trials.full_precision();
  if (trials.remote() == nullptr && !find_backend(options.build.backend).has_own_memory()) {
    search.watch.set_run(trials.run_bytes());
    // Golden outputs and those of a trial; weights give way, but for those of a step.
    warn_beyond_limit(
        options.memory_limit, 2 * trials.sample_bytes() + trials.activation_bytes(),
        fmt::format("inputs and outputs of {} samples, and the activations of one of them, take", trials.num_samples()),
        "fewer or smaller samples");
  }
  std::vector<TensorMap>& golden = search.samples.golden;
  if (golden.empty()) golden = outputs_of(search, trials, exact, search.data.samples.size());
  check_golden_values(search, golden, 0);
  warn_of_types_in_file(search);
}

void repair(SearchState& search) {
  if (search.space().candidates().empty()) return;
  low_use(search);
  if (!search.rule().of_formats) note_lowest(search, search.repairs.low->judgement);
  repair_constants(search);
  scale_regions(search);
  equalize(search);
}

RepairedNetwork with_repairs(const SearchState& search, const RepairedNetwork& from, std::span<const Repair> more) {
  auto repaired = std::make_shared<Network>(*from.network);
  SearchTask task = search.options;
  task.build.scales = from.scales;
  apply_repairs(*repaired, task.build.scales, more);
  // Added layers move the others.
  for (auto* list : {&task.keep, &task.lower})
    for (LayerId& id : *list) id = repaired->find_layer(search.data.network->layer(id).name);
  task.formats.clear();
  for (const auto& [id, formats] : search.options.formats)
    task.formats[repaired->find_layer(search.data.network->layer(id).name)] = formats;
  for (const SingularCancellation& each : search.repairs.cancellations)
    for (const LayerId kept : each.layers)
      if (const LayerId id = repaired->find_layer(search.current.network->layer(kept).name);
          id != kNone && std::ranges::find(task.keep, id) == task.keep.end())
        task.keep.push_back(id);
  RepairedNetwork result{repaired, task.build.scales, from.steps, nullptr};
  if (!more.empty()) result.steps.emplace_back(more.begin(), more.end());
  for (const auto& step : result.steps)
    for (const Repair& repair : step)
      for (const std::string& name : repair.keeps) {
        const LayerId id = repaired->find_layer(name);
        if (std::ranges::find(task.keep, id) == task.keep.end() &&
            std::ranges::find(task.lower, id) == task.lower.end())
          task.keep.push_back(id);
      }
  result.space =
      std::make_unique<SearchSpace>(repaired, task, all_samples(search.data), search.space().trials().weights());
  result.space->trials().set_workers(search.data.workers, result.steps);
  for (const auto& [from_place, to] : search.samples.moves) result.space->trials().move_sample(from_place, to);
  if (search.space().has_raised_biases()) result.space->raise_biases();
  return result;
}

void go_on_with(SearchState& search, RepairedNetwork repaired) {
  search.current = std::move(repaired);
  search.repairs.words = words_of(search.answer.repairs);
  search.repairs.low.reset();
  search.done.clear();
}

void keep_cancellations(SearchState& search) {
  search.show(Stage::kCancellation);
  SearchSpace& space = search.space();
  std::vector<SingularCancellation> found =
      find_singular_cancellations(space.trials(), space.low(), space.candidates(), search.samples.searched);
  if (found.empty()) return;
  const bool keeps = search.options.margin <= 0;
  for (const SingularCancellation& each : found)
    log_warning(
        fmt::format("[search] cancellation ahead of a singular function: {}. Other inputs may lose more{}",
                    text_of(*search.current.network, each),
                    keeps ? fmt::format("; {} layer(s) stay in {}, and the search aims at {:g} of the tolerance",
                                        each.layers.size(), name_of(search.options.ladder.back()), kNarrowestMargin)
                          : ", and --margin leaves its layers to the search; try without it, or more samples"));
  if (!keeps) return;
  // What was rounded ahead of the difference is magnified, too, by more where less is left of it, and a few samples
  // that lie close together say nothing of that.
  search.answer.margin = kNarrowestMargin;
  search.samples.margin_is_open = false;
  search.repairs.cancellations = std::move(found);
  go_on_with(search, with_repairs(search, search.current, {}));
}

}  // namespace ulpscope
