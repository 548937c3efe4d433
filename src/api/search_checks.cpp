#include "api/search_checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "core/messages.h"
#include "engine/target.h"
#include "precision/fingerprint.h"
#include "precision/objective.h"
#include "precision/repair.h"
#include "runtime/default_target.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

/// Times of another machine than the one at hand are no mistake where that is what one wants to know.
void warn_of_other_device(const BuildOptions& build, const Target& target) {
  if (!target.origin || target.origin->backend != build.backend) return;
  const DeviceDescription device = find_backend(build.backend).device();
  if (device.name == target.origin->device) return;
  log_warning(
      "[target] '{}' was measured on '{}', and --backend {} is '{}' here: its times are those of the other; try "
      "--target measured, or measuring again with `ulpscope target measure`",
      build.target, target.origin->device, build.backend, device.name);
}

/// TensorRT documents products that read narrow weights beside float activations for 4 bits alone.
void warn_of_weights_in_bytes(const BuildOptions& build, const Target& target) {
  std::vector<std::string_view> names;
  for (const Precision each : build.enabled.members())
    if (is_of_weights(each) && form_of(each).bytes(form_of(each).weight) >= 1) names.push_back(name_of(each));
  if (names.empty() || (target.origin && target.origin->backend != "cuda")) return;
  const bool is_named = build.target != default_target(build.backend);
  log(is_named ? LogLevel::kWarning : LogLevel::kInfo,
      fmt::format(
          "[search] TensorRT documents weights alone in int4, and fp4 as storage, and not in {}: an engine for {} "
          "may be refused or no faster; try --int4 --nvfp4 alone where TensorRT is to run it",
          fmt::join(names, ", "), target.name));
}

}  // namespace

void warn_of_weak_grounds(const SearchTask& task, const SearchData& data) {
  const Target target = find_target(task.build.target);
  warn_of_other_device(task.build, target);
  warn_of_weights_in_bytes(task.build, target);
  const bool scaled = target.kernels != nullptr && !target.kernels->of.empty();
  log_once(
      LogLevel::kInfo, "[target] Times are estimated for {} (--target {}){}", target.name, task.build.target,
      scaled ? fmt::format(": those measured on {}, as the rates and processors are to each other", target.kernels->of)
             : "");
  for (const Precision precision : task.build.enabled.members())
    if (!target.has(precision))
      log_warning("[search] {} has no rate for {}: its times there are those of fp32; try another --target",
                  target.name, name_of(precision));
  const auto& samples = data.samples;
  if (samples.size() > 1 &&
      std::ranges::all_of(samples, [&](const TensorMap& each) { return same_bits({&each, 1}, {&samples[0], 1}); }))
    log_warning(
        "[search] the {} samples to search on are all the same: the answer holds for this one kind of input, and its "
        "margin tells nothing; try samples as different as the data will be",
        samples.size());
  std::set<std::string> searched;
  for (const TensorMap& each : samples) searched.insert(hash_of_samples({&each, 1}));
  const auto known = std::ranges::count_if(
      data.held_out, [&](const TensorMap& each) { return searched.contains(hash_of_samples({&each, 1})); });
  if (known > 0)
    log_warning(
        "[search] {} of the {} held-out samples are samples of the search, too: that these pass says nothing about "
        "other data; try --hold-out with data that the search does not see",
        known, data.held_out.size());
}

void check_golden_shapes(const SearchData& data, const Criterion& criterion, bool infinities_equal) {
  if (data.golden.empty()) return;
  std::vector<ExpectedOutput> expected;
  for (const TensorId id : data.network->outputs) {
    const TensorInfo& info = data.network->tensor(id);
    ExpectedOutput output{info.name, info.shape.value_or(Shape{})};
    // Without a declared shape, the rank is whatever the results have.
    if (!info.shape)
      for (const NamedTensor& golden : data.golden.front())
        if (golden.name == info.name) output.shape = Shape(golden.tensor.shape().size(), -1);
    expected.push_back(std::move(output));
  }
  check_golden(data.golden, expected, criterion, infinities_equal, std::ssize(data.samples));
  if (!data.held_out_golden.empty())
    check_golden(data.held_out_golden, expected, criterion, infinities_equal, std::ssize(data.held_out));
}

void check_bits(const SearchStrategy& options, PrecisionSet enabled) {
  const auto refuse = [](const std::string& text) { throw invalid_argument("[search] " + text); };
  const ObjectiveRule& rule = rule_of(options.objective);
  if (options.bits != 0 && !(std::isfinite(options.bits) && options.bits > 0))
    refuse(fmt::format("--bits: expected a number of bits per weight above 0, got {}", options.bits));
  if (options.bits > 0 && options.objective != Objective::kError)
    refuse(
        fmt::format("--bits and --objective {} contradict each other: a budget is for the least error; try one of "
                    "them alone",
                    rule.name));
  if (options.objective == Objective::kError && options.bits == 0)
    refuse("--objective error: expected --bits beside it, the bits per weight that may be spent");
  if (!rule.of_formats) return;
  const std::string asked = options.bits > 0 ? "--bits" : "--objective bits";
  if (options.shrink) refuse(asked + " and --shrink contradict each other: no layers are kept that could go");
  const std::vector<Precision> members = enabled.members();
  const auto both = std::ranges::find_if(members, [](Precision each) { return is_quantized(each); });
  if (both != members.end())
    refuse(
        fmt::format("{}: expected formats for weights alone, got {}, which has activations in it, too; try "
                    "--weights-only (in Python {})",
                    asked, name_of(*both), name_of(weights_alone(*both))));
  if (std::ranges::none_of(members, is_of_weights))
    refuse(asked +
           ": expected formats for weights alone, which bits are spent on; try --weights-only --int4 --nvfp4 --int8 "
           "--fp8");
}

void check_options(const SearchStrategy& options) {
  const auto other = std::ranges::find_if_not(options.ladder, [](Precision each) { return is_rung(form_of(each)); });
  if (options.ladder.empty() || other != options.ladder.end())
    throw invalid_argument("[search] fallback: expected one or more of {}, got {}; try fp32",
                           precision_list(" and ", is_rung), options.ladder.empty() ? "none" : name_of(*other));
  const auto refuse = [](const char* name, const char* expected, double got) {
    throw invalid_argument("[search] {}: expected {}, got {}", name, expected, got);
  };
  if (!(options.margin >= 0 && options.margin <= 1))
    refuse("margin", "above 0 and at most 1, or 0 for one from the data", options.margin);
  if (!(options.time_limit >= 0)) refuse("time limit", "seconds, or 0 for none", options.time_limit);
  if (options.max_trials < 0)
    refuse("max trials", "1 or more, or 0 for no limit", static_cast<double>(options.max_trials));
}

}  // namespace ulpscope
