#include "backend/cuda/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/cuda/runtime.h"
#include "core/messages.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {

std::vector<StepTactic> tactics_of(const Steps& steps) {
  std::vector<StepTactic> tactics;
  for (const Step& step : steps.steps) {
    if (const auto* product = std::get_if<ProductStep>(&step.work))
      tactics.push_back({step.layer, product->spec.text(), product->product->tactic()});
    else if (const auto* both = std::get_if<ProductProgramStep>(&step.work)) {
      tactics.push_back({step.layer, both->computes, both->algorithm});
      if (both->function == nullptr)
        tactics.push_back({step.layer, both->product.spec.text(), both->product.product->tactic()});
    } else if (const auto* convolution = std::get_if<ConvolveStep>(&step.work))
      tactics.push_back({step.layer, text_of(convolution->spec), convolution->plan->tactic()});
    else if (const auto* kernel = std::get_if<KernelStep>(&step.work))
      tactics.push_back({step.layer, std::string(kGeneratedKernel), kernel->source->hash});
  }
  return tactics;
}

void Replay::Missing::add(bool found, const std::string& step) {
  ++of;
  if (found) return;
  if (count++ == 0) first = step;
}

Replay::Replay(const TacticReplay* wanted, const Network& network, const Grouping& grouping, std::string_view device)
    : wanted_(wanted), network_(network), grouping_(grouping), device_(device) {
  if (wanted_ == nullptr) return;
  if (!wanted_->device.empty() && wanted_->device != device_)
    throw error_of(ErrorCode::kBuild,
                   "[tactics] the builder does not offer the tactics of the replay: they were chosen for '{}', this is "
                   "'{}'. Try --save-tactics again",
                   wanted_->device, device_);
  for (const auto& [name, group] : wanted_->groups)
    for (const TacticReplay::Step& step : group.steps) known_.insert(step.computes);
}

const TacticReplay::GroupTactics* Replay::group(LayerId layer) const {
  if (wanted_ == nullptr || layer == kNone) return nullptr;
  const int index = grouping_.group_of[layer];
  if (index == kNone) return nullptr;
  const auto found = wanted_->groups.find(group_name(network_, grouping_.groups[static_cast<std::size_t>(index)]));
  return found == wanted_->groups.end() ? nullptr : &found->second;
}

std::string Replay::layer_name(LayerId layer) const {
  return layer == kNone ? std::string() : network_.layer(layer).name;
}

const std::string* Replay::algorithm(LayerId layer, std::string_view computes) {
  if (wanted_ == nullptr) return nullptr;
  const std::string* found = nullptr;
  if (const auto* said = group(layer))
    if (const auto step = std::ranges::find(said->steps, computes, &TacticReplay::Step::computes);
        step != said->steps.end())
      found = &step->algorithm;
  algorithms_.add(found != nullptr, fmt::format("layer '{}': {}", layer_name(layer), computes));
  return found;
}

void Replay::generated(LayerId layer, std::string_view hash) {
  const auto* said = group(layer);
  if (said == nullptr) return;  // Of another version or backend, which is said elsewhere.
  const bool same = std::ranges::any_of(said->steps, [&](const TacticReplay::Step& step) {
    return step.computes == kGeneratedKernel && step.algorithm == hash;
  });
  kernels_.add(same, fmt::format("layer '{}'", layer_name(layer)));
}

Error Replay::refusal(LayerId layer, std::string_view computes, std::string_view algorithm) const {
  return {ErrorCode::kBuild,
          fmt::format("[tactics] layer '{}': the builder does not offer the algorithm '{}' of the replay for {} on {}. "
                      "Was the file edited, or written by another version of ulpscope? Try --save-tactics again",
                      layer_name(layer), algorithm, computes, device_)};
}

void Replay::report() const {
  if (algorithms_.count > 0)
    log_warning(
        fmt::format("The tactic replay has no algorithm for {} of {} products and convolutions, for other shapes or "
                    "another network perhaps, and they take the default; {}",
                    algorithms_.count, algorithms_.of, algorithms_.first));
  else if (kernels_.count > 0)
    log_warning(
        fmt::format("{} of {} generated kernels are not those of the tactic replay, for other shapes or of another "
                    "version of ulpscope perhaps, and last bits may differ; {}",
                    kernels_.count, kernels_.of, kernels_.first));
}

}  // namespace ulpscope::cuda
