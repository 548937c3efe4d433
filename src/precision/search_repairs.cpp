// What a search does before it raises layers: golden outputs, and repairs, which cost no precision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "calibration/equalize.h"
#include "calibration/region_scaling.h"
#include "precision/search_process.h"
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

}  // namespace

/// Those to search on first.
std::vector<TensorMap> Search::all_samples() const {
  std::vector<TensorMap> samples = data_.samples;
  samples.insert(samples.end(), data_.held_out.begin(), data_.held_out.end());
  return samples;
}

void Search::prepare() {
  network_ = data_.network;
  scales_ = options_.build.scales;
  show("computing golden outputs");
  space_ = std::make_unique<SearchSpace>(network_, options_, all_samples(), data_.weights);
  space_->trials().set_workers(data_.workers);
  warn_of_unmeasured_groups();
  golden_ = data_.golden;
  held_out_golden_ = data_.held_out_golden;
  Trials& trials = space_->trials();
  const Assignment exact = trials.full_precision();
  if (trials.remote() == nullptr && !find_backend(options_.build.backend).has_own_memory()) {
    memory_.set_run(trials.run_bytes());
    // Golden outputs and those of a trial; weights give way, but for those of a step.
    warn_beyond_limit(
        options_.memory_limit, 2 * trials.sample_bytes() + trials.activation_bytes(),
        fmt::format("inputs and outputs of {} samples, and the activations of one of them, take", trials.num_samples()),
        "fewer or smaller samples");
  }
  if (golden_.empty()) golden_ = trials.run(exact, 0, data_.samples.size(), false, [&] { check_limits(false); });
  check_golden_values(golden_, "");
  const auto typed = std::ranges::count_if(space_->candidates(), [&](LayerId id) {
    if (!network_->layers.contains(id)) return false;  // Inside of a body.
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
  check_has_elements(golden, criterion_, what);
}

/// Of the tolerance, by everything in the lowest precisions.
double Search::low_use() {
  if (!low_use_) {
    low_result_ = run_trial(*space_, space_->low(), 0, searched_, true);
    low_use_ = low_result_->judgement.used;
  }
  return *low_use_;
}

void Search::forget_low_use() {
  low_use_.reset();
  low_result_.reset();
}

/// In float32, of the first samples of the search.
std::vector<TensorMap> Search::exact_outputs(SearchSpace& space, std::size_t count) {
  return space.trials().run(space.trials().full_precision(), 0, count, false, [&] { check_limits(false); });
}

/// Constants that only need clamping. Kept if the fp32 outputs stay where they are, with room for larger data.
void Search::repair_constants() {
  for (const Repair& note : find_scale_shifts(*space_->trials().specialization(), space_->low()))
    repairs_.push_back(note);
  if (!options_.repair) return;
  const std::vector<Repair> clamps = find_clamps(*space_->trials().specialization(), space_->low());
  if (clamps.empty()) return;
  show("repairing constants");
  // A mask of -inf does what one of -3.4e38 does, unless it becomes NaN, or int8 takes its scale from it.
  const auto& precisions = space_->low().precision;
  if (std::ranges::find(precisions, Precision::kINT8) == precisions.end() && std::isfinite(low_use())) return;
  accept_repairs(clamps, [&](SearchSpace& space, std::span<const Repair> chosen) {
    constexpr double kHarmless = 0.01;  // Of the tolerance.
    const auto is_harmless = [&](SearchSpace& clamped) {
      return judge(golden_, exact_outputs(clamped, searched_)).passed(kHarmless * margin_);
    };
    const auto tight = [&] { return with_repairs(*network_, scales_, repair_steps_, tightened(chosen)); };
    return is_harmless(space) && is_harmless(*tight().space);
  });
}

/// For the values of tensors whose ranges are taken.
std::size_t Search::range_memory() {
  const std::size_t most = CalibrationOptions().memory_limit;
  return options_.memory_limit > 0 ? options_.memory_limit / 8 : std::min(most, space_->trials().working_memory());
}

/// Channels that one int8 scale does not suit. Kept if the fp32 outputs stay the same to the bit, and larger data lose
/// nothing by it.
void Search::equalize() {
  const Assignment& low = space_->low();
  if (!options_.repair || std::ranges::find(low.precision, Precision::kINT8) == low.precision.end()) return;
  const auto spec = space_->trials().specialization();
  const std::vector<ChannelAxis> tensors = equalizable_tensors(*spec, low);
  if (tensors.empty()) return;
  show("equalizing channels");
  CalibrationOptions calibration;
  calibration.threads = options_.build.threads;
  calibration.memory_limit = range_memory();
  std::vector<Repair> found;
  for (const Equalization& each : find_equalizations(
           *spec, low, channel_ranges(*network_, tensors, data_.samples, calibration, space_->trials().weights()),
           scales_))
    found.push_back(repair_of(each));
  if (found.empty()) return;
  // Powers of two are exact unless values overflow or become subnormal: one sample shows whether the layers around take
  // them as they should, and every trial is judged by the golden outputs anyway.
  const bool golden_is_ours = data_.golden.empty() && network_ == data_.network;
  const std::vector<TensorMap> before =
      golden_is_ours ? std::vector<TensorMap>{golden_.front()} : exact_outputs(*space_, 1);
  const double doubled_before = use_on_doubled(*space_, low);
  std::optional<TrialResult> result;
  accept_repairs(found, [&](SearchSpace& space, std::span<const Repair>) {
    if (!same_bits(before, exact_outputs(space, 1))) return false;
    TrialResult trial = run_trial(space, space.low(), 0, searched_, true);
    if (!bears_doubled(trial.judgement.used, use_on_doubled(space, space.low()), doubled_before)) return false;
    result = std::move(trial);
    return true;
  });
  if (!result) return;
  low_use_ = result->judgement.used;
  low_result_ = std::move(result);
}

/// Regions whose tensors leave the range of fp16. Kept if the fp32 outputs stay the same to the bit, and fp16 gains by
/// it: where layers are to leave int8 for fp16, everything on that rung, since int8 knows no overflow that it would
/// mend. Scales of int8 move with the tensors, so its integers stay what they are, and so does the calibration.
void Search::scale_regions() {
  const Assignment fp16 = in_fp16(*space_);
  if (!options_.repair || std::ranges::find(fp16.precision, Precision::kFP16) == fp16.precision.end()) return;
  show("looking for regions to scale");
  if (low_use() <= margin_) return;
  const bool fp16_is_low = std::ranges::equal(fp16.precision, space_->low().precision);
  const auto use_of = [&](SearchSpace& space) {
    return judge(golden_, space.trials().run(in_fp16(space), 0, searched_, false, [&] { check_limits(false); })).used;
  };
  const double before = fp16_is_low ? low_use() : use_of(*space_);
  if (before <= margin_) return;
  CalibrationOptions calibration;
  calibration.threads = options_.build.threads;
  calibration.memory_limit = range_memory();
  const RegionScaling found = find_region_scaling(*space_->trials().specialization(), fp16, data_.samples, calibration,
                                                  space_->trials().weights(), scales_, options_.build.backend);
  for (const std::string& sentence : found.beyond) log_info("[repair] " + sentence);
  if (found.regions.empty()) return;
  const std::vector<TensorMap> exact = exact_outputs(*space_, searched_);
  const double doubled_before = use_on_doubled(*space_, fp16);
  accept_repairs(found.regions, [&](SearchSpace& space, std::span<const Repair>) {
    if (!same_bits(exact, exact_outputs(space, searched_))) return false;
    // Where infinities are left, others are gone: the regions are independent of each other.
    const double used = use_of(space);
    if (!(used < before) && !(std::isinf(used) && std::isinf(before))) return false;
    return bears_doubled(used, use_on_doubled(space, in_fp16(space)), doubled_before);
  });
}

/// Of the tolerance, on samples of the search whose floats are twice as large; nothing (0) where there are none, or
/// where nothing can be judged against their float32 outputs.
double Search::use_on_doubled(SearchSpace& space, const Assignment& assignment) {
  constexpr std::size_t kMost = 4;
  if (!doubled_) {
    doubled_.emplace();
    for (const TensorMap& sample : std::span(data_.samples).first(std::min(kMost, data_.samples.size())))
      if (auto doubled = doubled_sample(sample)) doubled_->samples.push_back(std::move(*doubled));
    if (!doubled_->samples.empty()) {
      Trials exact(data_.network, options_.build, doubled_->samples, space_->trials().weights());
      exact.set_memory_limit(options_.memory_limit);
      doubled_->golden = exact.run(exact.full_precision(), 0, exact.num_samples(), false, [&] { check_limits(false); });
      const auto is_finite = [&](const NamedTensor& output) {
        const NonFinite found = count_non_finite(output.tensor);
        return !criterion_.judges(output.name) || (found.nan == 0 && found.inf == 0);
      };
      if (!std::ranges::all_of(doubled_->golden,
                               [&](const TensorMap& outputs) { return std::ranges::all_of(outputs, is_finite); }))
        doubled_->samples.clear();
    }
  }
  if (doubled_->samples.empty()) return 0;
  Trials trials(space.trials().shared_network(), space.trials().options(), doubled_->samples, space.trials().weights());
  trials.set_memory_limit(options_.memory_limit);
  return judge(doubled_->golden, trials.run(assignment, 0, trials.num_samples(), false, [&] { check_limits(false); }))
      .used;
}

/// Whether data of twice the magnitude may lose by a repair: `used` by the samples with it, `doubled` by their doubles,
/// and by these without it. What was finite stays so, and a double loses no more than either.
bool Search::bears_doubled(double used, double doubled, double doubled_before) const {
  if (std::isinf(used)) return true;  // Something else is left to be mended.
  return std::isfinite(doubled) && doubled <= std::max({kRepairNoise * doubled_before, kRepairNoise * used, margin_});
}

/// All of them, or else those that are harmless, by halves.
void Search::accept_repairs(std::span<const Repair> found, const IsHarmless& is_harmless) {
  if (accept(found, is_harmless) || found.size() == 1) return;
  const std::size_t half = found.size() / 2;
  accept_repairs(found.first(half), is_harmless);
  accept_repairs(found.subspan(half), is_harmless);
}

/// `network`, which `steps` have made, after `more` repairs.
RepairedNetwork Search::with_repairs(const Network& network, std::map<std::string, float> scales, RepairSteps steps,
                                     std::span<const Repair> more) const {
  auto repaired = std::make_shared<Network>(network);
  SearchTask task = options_;
  task.build.scales = std::move(scales);
  apply_repairs(*repaired, task.build.scales, more);
  // Added layers move the others.
  for (auto* list : {&task.keep, &task.lower})
    for (LayerId& id : *list) id = repaired->find_layer(data_.network->layer(id).name);
  for (const std::string& name : kept_cancellations_)
    if (const LayerId id = repaired->find_layer(name);
        id != kNone && std::ranges::find(task.keep, id) == task.keep.end())
      task.keep.push_back(id);
  RepairedNetwork result{repaired, task.build.scales, std::move(steps), nullptr};
  if (!more.empty()) result.steps.emplace_back(more.begin(), more.end());
  result.space = std::make_unique<SearchSpace>(repaired, task, all_samples(), space_->trials().weights());
  result.space->trials().set_workers(data_.workers, result.steps);
  for (const auto& [from, to] : moves_) result.space->trials().move_sample(from, to);
  if (space_->has_raised_biases()) result.space->raise_biases();
  return result;
}

/// Goes on with the repaired network if `is_harmless` says so of it.
bool Search::accept(std::span<const Repair> chosen, const IsHarmless& is_harmless) {
  RepairedNetwork repaired = with_repairs(*network_, scales_, repair_steps_, chosen);
  if (!is_harmless(*repaired.space, chosen)) return false;
  repairs_.insert(repairs_.end(), chosen.begin(), chosen.end());
  go_on_with(std::move(repaired));
  return true;
}

void Search::go_on_with(RepairedNetwork repaired) {
  network_ = std::move(repaired.network);
  scales_ = std::move(repaired.scales);
  repair_steps_ = std::move(repaired.steps);
  space_ = std::move(repaired.space);
  repair_words_ = words_of(repairs_);
  forget_low_use();
  done_.clear();
}

/// Layers of differences without digits, ahead of functions that magnify what is left: they stay in the highest
/// precision, whatever the samples say of them. A margin of the user's says how safe it has to be.
void Search::keep_cancellations() {
  show("looking for cancellation ahead of singular functions");
  std::vector<SingularCancellation> found =
      find_singular_cancellations(space_->trials(), space_->low(), space_->candidates(), searched_);
  if (found.empty()) return;
  const bool keeps = options_.margin <= 0;
  for (const SingularCancellation& each : found) {
    log_warning(fmt::format("[search] cancellation ahead of a singular function: {}. Other inputs may lose more{}",
                            text_of(*network_, each),
                            keeps
                                ? fmt::format("; {} layer(s) stay in {}, and the search aims at {:g} of the tolerance",
                                              each.layers.size(), name_of(options_.ladder.back()), kNarrowestMargin)
                                : ", and --margin leaves its layers to the search; try without it, or more samples"));
    if (!keeps) continue;
    for (const LayerId id : each.layers) kept_cancellations_.push_back(network_->layer(id).name);
  }
  if (!keeps) return;
  // What was rounded ahead of the difference is magnified, too, by more where less is left of it, and a few samples
  // that lie close together say nothing of that.
  margin_ = kNarrowestMargin;
  margin_is_open_ = false;
  go_on_with(with_repairs(*network_, scales_, repair_steps_, {}));
  cancellations_ = std::move(found);
}

/// What costs no precision comes before layers are raised.
void Search::repair() {
  repair_constants();
  scale_regions();
  equalize();
}

}  // namespace ulpscope
