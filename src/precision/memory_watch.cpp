#include "precision/memory_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/memory.h"
#include "runtime/memory_limit.h"
#include "ulpscope/log.h"

namespace ulpscope {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
/// Of the program and its libraries, and what a system's allocator keeps.
constexpr std::uint64_t kProgram = 40 * kMiB, kSpare = 128 * kMiB;

/// What a stage holds beside a run.
std::string_view held_in(std::string_view stage) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kStages{
      {{"predicting", "values, errors and gradients of all layers of the samples that it works on"},
       {"explaining", "inputs and outputs of the kept layers of the samples that it works on"},
       {"computing golden outputs", "inputs and outputs of all samples, and prepared weights"},
       {"equalizing channels", "values of tensors whose ranges are taken"},
       {"looking for regions to scale", "values of tensors whose ranges are taken"},
       {"looking for cancellation ahead of singular functions", "values around such functions"}}};
  const auto found = std::ranges::find(kStages, stage, &std::pair<std::string_view, std::string_view>::first);
  return found != kStages.end()
             ? found->second
             : "activations that trials share, inputs and outputs of all samples, and weights in each "
               "precision";
}

}  // namespace

MemoryWatch::MemoryWatch(std::size_t limit) : limit_(limit), before_(anonymous_bytes() + kProgram) {
  take_peak_element_bytes();
}

void MemoryWatch::enter(const std::string& stage) {
  if (stage == stage_) return;
  const std::uint64_t peak = take_peak_element_bytes();
  if (peak > worst_) {
    worst_ = peak;
    worst_stage_ = stage_;
  }
  if (limit_ != 0) {
    // Once for what is about the same.
    if (!stage_.empty() && peak > limit_ && peak > said_ + said_ / 8) {
      warn_beyond_limit(limit_, peak, fmt::format("'{}' took ({})", stage_, held_in(stage_)),
                        "fewer or smaller samples");
      said_ = peak;
    }
    give_back_freed_memory();
  }
  stage_ = stage;
}

void MemoryWatch::finish() {
  enter("");
  const std::uint64_t peak = peak_resident_bytes(), run = before_ + run_;
  if (limit_ != 0) {
    if (worst_ <= limit_ && peak > limit_ + before_ + kSpare)
      log_warning(
          fmt::format("[memory] --memory-limit {}: tensors took {} at most, but the process {}: the rest is the "
                      "model's file, the program, and memory that was freed and not yet given back",
                      to_size_string(limit_), to_size_string(worst_), to_size_string(peak)));
    return;
  }
  // A little ahead of four times, and 300 MB.
  if (run_ == 0 || 2 * peak < 7 * run + 600'000'000) return;
  log_info(fmt::format(
      "[memory] the search took up to {}, where one run takes about {}: {} of tensors while {} ({}); "
      "--memory-limit BYTES makes it less, in more time",
      to_size_string(peak), to_size_string(run), to_size_string(worst_), worst_stage_, held_in(worst_stage_)));
}

}  // namespace ulpscope
