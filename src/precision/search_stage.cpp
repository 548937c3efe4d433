#include "precision/search_stage.h"

#include <array>

namespace ulpscope {
namespace {

constexpr std::array<std::string_view, static_cast<std::size_t>(Stage::kExplaining) + 1> kTexts = {
    "",
    "connecting to Ray",
    "starting workers",
    "running in float32",
    "computing golden outputs",
    "repairing constants",
    "looking for regions to scale",
    "equalizing channels",
    "looking for cancellation ahead of singular functions",
    "trying the lowest precisions everywhere",
    "predicting",
    "measuring layers without derivative",
    "trying overflows that look harmless",
    "weighing error against time",
    "searching",
    "polishing",
    "checking held-out samples",
    "trying other orders",
    "lowering the kept layers",
    "shrinking",
    "weighing repairs",
    "checking untouched samples",
    "checking the sets of other objectives",
    "explaining"};

}  // namespace

std::string_view text_of(Stage stage) noexcept { return kTexts[static_cast<std::size_t>(stage)]; }

std::string_view held_in(Stage stage) noexcept {
  switch (stage) {
    case Stage::kGolden:
      return "inputs and outputs of all samples, and prepared weights";
    case Stage::kRegions:
    case Stage::kChannels:
      return "values of tensors whose ranges are taken";
    case Stage::kCancellation:
      return "values around such functions";
    case Stage::kPredicting:
      return "values, errors and gradients of all layers of the samples that it works on";
    case Stage::kExplaining:
      return "values whose magnitudes the report shows, and what the kept layers read and write";
    default:
      return "activations that trials share, inputs and outputs of all samples, and weights in each precision";
  }
}

}  // namespace ulpscope
