#include "precision/search_stage.h"

#include <array>

namespace ulpscope {
namespace {

struct Texts {
  std::string_view stage, held;
};
constexpr std::string_view kUsual =
    "activations that trials share, inputs and outputs of all samples, and weights in each precision";
constexpr std::string_view kRanges = "values of tensors whose ranges are taken";

/// By stage.
constexpr std::array<Texts, static_cast<std::size_t>(Stage::kExplaining) + 1> kTexts = {{
    {"", kUsual},
    {"connecting to Ray", kUsual},
    {"starting workers", kUsual},
    {"running in float32", kUsual},
    {"computing golden outputs", "inputs and outputs of all samples, and prepared weights"},
    {"repairing constants", kUsual},
    {"looking for regions to scale", kRanges},
    {"equalizing channels", kRanges},
    {"looking for cancellation ahead of singular functions", "values around such functions"},
    {"trying the lowest precisions everywhere", kUsual},
    {"predicting", "values, errors and gradients of all layers of the samples that it works on"},
    {"measuring layers without derivative", kUsual},
    {"trying overflows that look harmless", kUsual},
    {"weighing error against time", kUsual},
    {"searching", kUsual},
    {"polishing", kUsual},
    {"checking held-out samples", kUsual},
    {"trying other orders", kUsual},
    {"lowering the kept layers", kUsual},
    {"shrinking", kUsual},
    {"weighing repairs", kUsual},
    {"checking untouched samples", kUsual},
    {"checking the sets of other objectives", kUsual},
    {"explaining", "inputs and outputs of the kept layers of the samples that it works on"},
}};

}  // namespace

std::string_view text_of(Stage stage) noexcept { return kTexts[static_cast<std::size_t>(stage)].stage; }
std::string_view held_in(Stage stage) noexcept { return kTexts[static_cast<std::size_t>(stage)].held; }

}  // namespace ulpscope
