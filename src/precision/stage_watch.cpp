#include "precision/stage_watch.h"

#include <fmt/format.h>

#include "core/memory.h"
#include "core/messages.h"
#include "runtime/memory_limit.h"

namespace ulpscope {
namespace {

/// Of the program and its libraries, and what a system's allocator keeps.
constexpr std::uint64_t kProgram = std::uint64_t{40} << 20, kSpare = std::uint64_t{128} << 20;

}  // namespace

StageWatch::StageWatch(std::size_t memory_limit) : limit_(memory_limit), before_(anonymous_bytes() + kProgram) {
  take_peak_element_bytes();
}

void StageWatch::enter(Stage stage) {
  if (stage == stage_) return;
  const double now = elapsed();
  if (stage_ != Stage::kNone) log_verbose("{}: {:.3f} s", text_of(stage_), now - begin_);
  begin_ = now;
  const std::uint64_t peak = take_peak_element_bytes();
  if (peak > worst_) {
    worst_ = peak;
    worst_stage_ = stage_;
  }
  if (limit_ != 0) {
    // Once for what is about the same.
    if (stage_ != Stage::kNone && peak > limit_ && peak > said_ + said_ / 8) {
      warn_beyond_limit(limit_, peak, fmt::format("'{}' took ({})", text_of(stage_), held_in(stage_)),
                        "fewer or smaller samples");
      said_ = peak;
    }
    give_back_freed_memory();
  }
  stage_ = stage;
}

void StageWatch::finish() {
  enter(Stage::kNone);
  const std::uint64_t peak = peak_resident_bytes(), run = before_ + run_;
  if (limit_ != 0) {
    if (worst_ <= limit_ && peak > limit_ + before_ + kSpare)
      log_warning(
          "[memory] --memory-limit {}: tensors took {} at most, but the process {}: the rest is the model's file, the "
          "program, and memory that was freed and not yet given back",
          to_size_string(limit_), to_size_string(worst_), to_size_string(peak));
    return;
  }
  // A little ahead of four times, and 300 MB.
  if (run_ == 0 || 2 * peak < 7 * run + 600'000'000) return;
  log_info(
      "[memory] the search took up to {}, where one run takes about {}: {} of tensors while {} ({}); --memory-limit "
      "BYTES makes it less, in more time",
      to_size_string(peak), to_size_string(run), to_size_string(worst_), text_of(worst_stage_), held_in(worst_stage_));
}

}  // namespace ulpscope
