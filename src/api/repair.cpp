// The float32 model whose float16 is safe.
#include "precision/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "api/loaded_model.h"
#include "api/write_model.h"
#include "calibration/region_scaling.h"
#include "convert/convert.h"
#include "core/messages.h"
#include "core/parallel.h"
#include "engine/assign.h"
#include "precision/criterion.h"
#include "precision/trials.h"
#include "runtime/memory_limit.h"
#include "ulpscope/convert.h"

namespace ulpscope {
namespace {

/// Repairs a network step by step, as long as its outputs keep every bit, and float16 loses nothing by it.
class Repairer {
 public:
  Repairer(const LoadedModel& model, const std::vector<TensorMap>& samples, const RepairOptions& options)
      : model_(model), samples_(samples), options_(options), network_(std::make_shared<Network>(*model.network)) {
    for (Layer& layer : network_->layers) {
      layer.precision.reset();
      layer.output_types.clear();
    }
    build_.threads = model.build.threads;
    build_.memory_limit = model.build.memory_limit;
    build_.fusion = Fusion::kNone;
    outputs_ = outputs_of(network_);
  }

  RepairedModel repair() {
    RepairedModel result;
    {
      const auto spec = specialize_for(*network_, samples_.front());
      accept(find_clamps(*spec, low(*spec)), result, [&](std::span<const Repair> clamps) {
        return same_bits(outputs_, outputs_of(repaired(tightened(clamps))));
      });
    }
    const auto spec = specialize_for(*network_, samples_.front());
    CalibrationOptions calibration;
    calibration.threads = build_.threads;
    if (build_.memory_limit != 0)
      calibration.memory_limit = std::min(calibration.memory_limit, build_.memory_limit / 2);
    interrupt();
    const RegionScaling found = find_region_scaling(*spec, low(*spec), samples_, calibration, weights_);
    result.beyond = found.beyond;
    if (found.regions.empty()) return result;
    const double before = error_in_fp16(network_);
    accept(found.regions, result, [&](std::span<const Repair> regions) {
      const double after = error_in_fp16(repaired(regions));
      return after < before || (std::isinf(after) && std::isinf(before));
    });
    return result;
  }

  /// Those of an answer, whose other parts are for the network with all of them.
  RepairedModel adopt(const AnswerFile& answer) {
    RepairedModel result;
    std::ranges::copy_if(answer.answer.repairs, std::back_inserter(result.repairs), changes_network);
    network_ = repaired(result.repairs);
    if (!same_bits(outputs_, outputs_of(network_)))
      log_warning(
          "[repair] The repairs of the answer change float32 outputs on these samples; try those of the search");
    return result;
  }

  const std::shared_ptr<Network>& network() const { return network_; }
  Assignment exact(const Specialization& spec) const { return assign_precisions(spec, build_); }

 private:
  void interrupt() const {
    if (options_.interrupt) options_.interrupt();
  }

  /// Everything in fp16.
  Assignment low(const Specialization& spec) const {
    BuildOptions build = build_;
    build.enabled.set(Precision::kFP16);
    build.assume_lowest = true;
    return assign_precisions(spec, build);
  }

  std::vector<TensorMap> outputs_of(const std::shared_ptr<const Network>& network) {
    interrupt();
    Trials trials(network, build_, samples_, weights_);
    auto outputs = trials.run(trials.full_precision(), 0, samples_.size(), false, [&] { interrupt(); });
    weights_ = trials.weights();
    return outputs;
  }

  /// Of everything in fp16: rel-l2 of the worst output and sample.
  double error_in_fp16(const std::shared_ptr<const Network>& network) {
    interrupt();
    BuildOptions build = build_;
    build.enabled.set(Precision::kFP16);
    build.assume_lowest = true;
    Trials trials(network, build, samples_, weights_);
    const auto criterion = make_metric_criterion(MetricKind::kRelativeL2, 1.0, {}, /*infinities_equal=*/true);
    return criterion
        ->judge(outputs_, trials.run(trials.assign(Requests(network->layers.size())), 0, samples_.size(), false,
                                     [&] { interrupt(); }))
        .used;
  }

  std::shared_ptr<Network> repaired(std::span<const Repair> repairs) const {
    auto network = std::make_shared<Network>(*network_);
    std::map<std::string, float> no_scales;
    apply_repairs(*network, no_scales, repairs);
    return network;
  }

  /// All of them, or else those that change no bit and suit, by halves.
  void accept(std::span<const Repair> found, RepairedModel& result,
              const std::function<bool(std::span<const Repair>)>& suits) {
    if (found.empty()) return;
    auto next = repaired(found);
    const bool same = same_bits(outputs_, outputs_of(next));
    if (same && suits(found)) {
      network_ = std::move(next);
      result.repairs.insert(result.repairs.end(), found.begin(), found.end());
    } else if (found.size() > 1) {
      accept(found.first(found.size() / 2), result, suits);
      accept(found.subspan(found.size() / 2), result, suits);
    } else {
      log_warning("[repair] {} '{}' is left out: {}", kind_of(found.front()), found.front().name,
                  same ? "it would harm data that are larger, or float16 would not gain by it"
                       : "it would change float32 outputs");
    }
  }

  const LoadedModel& model_;
  const std::vector<TensorMap>& samples_;
  const RepairOptions& options_;
  std::shared_ptr<Network> network_;
  BuildOptions build_;
  WeightCache weights_;
  std::vector<TensorMap> outputs_;
};

}  // namespace

RepairedModel repair(const Model& model, const std::filesystem::path& path, std::span<const TensorsByName> samples,
                     const RepairOptions& options) {
  LoadedModel& loaded = ModelAccess::loaded(model);
  if (samples.empty()) throw invalid_argument("[repair] expected inputs to measure ranges with, got none");
  if (options.answer)
    check_answer_model(loaded, *options.answer, fmt::format("[repair] --answer {}", options.answer->path.string()));
  set_num_threads(loaded.build.threads);
  begin_limited(*loaded.network, loaded.build.memory_limit);
  const std::vector<TensorMap> fitted = fitted_samples(*loaded.network, samples);
  Repairer repairer(loaded, fitted, options);
  RepairedModel result = options.answer ? repairer.adopt(*options.answer) : repairer.repair();
  result.repairs.insert(result.repairs.begin(), loaded.clamps.begin(), loaded.clamps.end());
  for (const Repair& each : result.repairs) {
    const auto* region = std::get_if<ScaleRegion>(&each.change);
    if (region == nullptr) {
      ++result.constants;
      continue;
    }
    const auto inserted =
        static_cast<int>(std::ranges::count(region->edits, ScaleEdit::Kind::kInsertion, &ScaleEdit::kind));
    result.inserted += inserted;
    result.constants += static_cast<int>(region->edits.size()) - inserted;
  }
  const auto spec = specialize_for(*repairer.network(), fitted.front());
  TypedModelOptions typed;
  typed.fusion = Fusion::kNone;
  typed.samples = fitted;
  typed.verify = options.verify;
  typed.lowers = false;
  typed.memory_limit = loaded.build.memory_limit;
  typed.interrupt = options.interrupt;
  write_checked_model(loaded, *spec, repairer.exact(*spec), result.repairs, std::move(typed), options.python_checks,
                      path);
  end_limited(loaded.build.memory_limit,
              "the inputs and outputs of all samples, the values whose ranges are taken, and what a run holds took",
              "fewer or smaller samples");
  return result;
}

}  // namespace ulpscope
