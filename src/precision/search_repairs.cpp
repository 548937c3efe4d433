// What a search does before it raises layers: golden outputs, and repairs, which cost no precision.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibration/equalize.h"
#include "calibration/region_scaling.h"
#include "precision/search_process.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope {

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
  if (golden_.empty()) golden_ = trials.run(exact, 0, data_.samples.size(), false, [&] { check_limits(false); });
  check_golden_values(golden_, "");
  const auto typed = std::ranges::count_if(space_->candidates(), [&](LayerId id) {
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
    low_result_ = run_trial(space_->low(), 0, searched_, true);
    low_use_ = low_result_->judgement.used;
  }
  return *low_use_;
}

void Search::forget_low_use() {
  low_use_.reset();
  low_result_.reset();
}

/// What the repairs from this one on bought.
void Search::note_gain(std::size_t repairs_before, double used_before) {
  if (repairs_.size() == repairs_before) return;
  const double after = low_use();
  for (std::size_t i = repairs_before; i < repairs_.size(); ++i) {
    repairs_[i].used_before = used_before;
    repairs_[i].used_after = after;
  }
}

/// Constants that only need clamping. Kept if the fp32 outputs stay where they are.
void Search::repair_constants() {
  for (const Repair& note : find_scale_shifts(*space_->trials().specialization(), space_->low()))
    repairs_.push_back(note);
  if (!options_.repair) return;
  const std::vector<Repair> clamps = find_clamps(*space_->trials().specialization(), space_->low());
  if (clamps.empty()) return;
  show("repairing constants");
  const std::size_t known = repairs_.size();
  const double before = low_use();
  constexpr double kHarmless = 0.01;  // Of the tolerance.
  accept_repairs(clamps, [&](SearchSpace& space) {
    const auto outputs = space.trials().run(space.trials().full_precision(), 0, data_.samples.size(), false);
    return judge(golden_, outputs).passed(kHarmless * margin_);
  });
  note_gain(known, before);
}

/// Channels that one int8 scale does not suit. Kept if the fp32 outputs stay the same to the bit.
void Search::equalize() {
  const Assignment& low = space_->low();
  if (!options_.repair || std::ranges::find(low.precision, Precision::kINT8) == low.precision.end()) return;
  const auto spec = space_->trials().specialization();
  const std::vector<ChannelAxis> tensors = equalizable_tensors(*spec, low);
  if (tensors.empty()) return;
  show("equalizing channels");
  CalibrationOptions calibration;
  calibration.threads = options_.build.threads;
  if (options_.memory_limit > 0) calibration.memory_limit = options_.memory_limit / 8;
  std::vector<Repair> found;
  for (const Equalization& each : find_equalizations(
           *spec, low, channel_ranges(*network_, tensors, data_.samples, calibration, space_->trials().weights()),
           scales_))
    found.push_back(repair_of(each));
  if (found.empty()) return;
  // Powers of two are exact unless values overflow or become subnormal: one sample shows whether the layers around take
  // them as they should, and every trial is judged by the golden outputs anyway.
  const auto exact = [](SearchSpace& space) {
    return space.trials().run(space.trials().full_precision(), 0, 1, false);
  };
  // The golden outputs, where they are this network's own.
  const bool golden_is_ours = data_.golden.empty() && network_ == data_.network;
  const std::vector<TensorMap> before = golden_is_ours ? std::vector<TensorMap>{golden_.front()} : exact(*space_);
  const std::size_t known = repairs_.size();
  const double used = low_use();
  accept_repairs(found, [&](SearchSpace& space) { return same_bits(before, exact(space)); });
  note_gain(known, used);
}

/// Regions whose tensors leave the range of fp16. Kept if the fp32 outputs stay the same to the bit, and fp16 gains by
/// it: where layers are to leave int8 for fp16, everything on that rung, since int8 knows no overflow that it would
/// mend. Scales of int8 move with the tensors, so its integers stay what they are, and so does the calibration.
void Search::scale_regions() {
  const Assignment fp16 = in_fp16(*space_);
  if (!options_.repair || std::ranges::find(fp16.precision, Precision::kFP16) == fp16.precision.end()) return;
  show("looking for regions to scale");
  const auto run = [&](SearchSpace& space, const Assignment& assignment) {
    return space.trials().run(assignment, 0, data_.samples.size(), false, [&] { check_limits(false); });
  };
  if (low_use() <= margin_) return;
  const bool fp16_is_low = std::ranges::equal(fp16.precision, space_->low().precision);
  const auto use_of = [&](SearchSpace& space) { return judge(golden_, run(space, in_fp16(space))).used; };
  const double before = fp16_is_low ? low_use() : use_of(*space_);
  if (before <= margin_) return;
  CalibrationOptions calibration;
  calibration.threads = options_.build.threads;
  if (options_.memory_limit > 0) calibration.memory_limit = options_.memory_limit / 8;
  const RegionScaling found = find_region_scaling(*space_->trials().specialization(), fp16, data_.samples, calibration,
                                                  space_->trials().weights(), scales_, options_.build.backend);
  for (const std::string& sentence : found.beyond) log_info("[repair] " + sentence);
  if (found.regions.empty()) return;
  const std::size_t known = repairs_.size();
  const std::vector<TensorMap> exact = run(*space_, space_->trials().full_precision());
  double after = before;
  accept_repairs(found.regions, [&](SearchSpace& space) {
    if (!same_bits(exact, run(space, space.trials().full_precision()))) return false;
    // Where infinities are left, others are gone: the regions are independent of each other.
    const double used = use_of(space);
    const bool gains = used < before || (std::isinf(used) && std::isinf(before));
    if (gains) after = used;
    return gains;
  });
  for (std::size_t i = known; i < repairs_.size(); ++i) {
    repairs_[i].used_before = before;
    repairs_[i].used_after = after;
  }
}

/// All of them, or else those that are harmless, by halves.
void Search::accept_repairs(std::span<const Repair> found, const std::function<bool(SearchSpace&)>& harmless) {
  if (accept(found, harmless) || found.size() == 1) return;
  const std::size_t half = found.size() / 2;
  accept_repairs(found.first(half), harmless);
  accept_repairs(found.subspan(half), harmless);
}

/// Goes on with the repaired network if `harmless` says so of it.
bool Search::accept(std::span<const Repair> chosen, const std::function<bool(SearchSpace&)>& harmless) {
  auto repaired = std::make_shared<Network>(*network_);
  SearchTask options = options_;
  options.build.scales = scales_;
  apply_repairs(*repaired, options.build.scales, chosen);
  // Added layers move the others.
  for (auto* list : {&options.keep, &options.lower})
    for (LayerId& id : *list) id = repaired->find_layer(data_.network->layer(id).name);
  auto space = std::make_unique<SearchSpace>(repaired, options, all_samples(), space_->trials().weights());
  RepairSteps steps = repair_steps_;
  steps.emplace_back(chosen.begin(), chosen.end());
  space->trials().set_workers(data_.workers, steps);
  if (!harmless(*space)) return false;
  repair_steps_ = std::move(steps);
  network_ = repaired;
  forget_low_use();
  space_ = std::move(space);
  scales_ = options.build.scales;
  repairs_.insert(repairs_.end(), chosen.begin(), chosen.end());
  return true;
}

/// Layers of differences without digits, ahead of functions that magnify what is left: they stay in the highest
/// precision, whatever the samples say of them. A margin of the user's says how safe it has to be.
void Search::keep_cancellations() {
  show("looking for cancellation ahead of singular functions");
  std::vector<SingularCancellation> found =
      find_singular_cancellations(space_->trials(), space_->low(), space_->candidates(), searched_);
  if (found.empty()) return;
  SearchTask kept = options_;
  kept.build.scales = scales_;
  for (auto* list : {&kept.keep, &kept.lower})
    for (LayerId& id : *list) id = network_->find_layer(data_.network->layer(id).name);
  const bool keeps = options_.margin <= 0;
  for (const SingularCancellation& each : found) {
    log_warning(fmt::format("[search] cancellation ahead of a singular function: {}. Other inputs may lose more{}",
                            text_of(*network_, each),
                            keeps
                                ? fmt::format("; {} layer(s) stay in {}, and the search aims at {:g} of the tolerance",
                                              each.layers.size(), name_of(options_.ladder.back()), kNarrowestMargin)
                                : ", and --margin leaves its layers to the search; try without it, or more samples"));
    for (LayerId id : each.layers)
      if (std::ranges::find(kept.keep, id) == kept.keep.end()) kept.keep.push_back(id);
  }
  if (!keeps) return;
  // What was rounded ahead of the difference is magnified, too, by more where less is left of it, and a few samples
  // that lie close together say nothing of that.
  margin_ = kNarrowestMargin;
  margin_is_open_ = false;
  space_ = std::make_unique<SearchSpace>(network_, kept, all_samples(), space_->trials().weights());
  space_->trials().set_workers(data_.workers, repair_steps_);
  forget_low_use();
  cancellations_ = std::move(found);
}

/// What costs no precision comes before layers are raised.
void Search::repair() {
  repair_constants();
  scale_regions();
  equalize();
}

}  // namespace ulpscope
