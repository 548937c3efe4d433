// What a search takes, stage by stage: time, and memory beside one run. Says where that is much.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "precision/search_stage.h"

namespace ulpscope {

/// Not thread-safe. One is there at a time: peaks are those of the process.
class StageWatch {
 public:
  explicit StageWatch(std::size_t memory_limit);

  /// Seconds since it began.
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// The stage before has ended: says how long it took, and warns where its tensors were more than the limit.
  void enter(Stage stage);
  /// What one run holds.
  void set_run(std::size_t bytes) noexcept { run_ = bytes; }
  /// Ends the last stage. Says what took the memory where that is several times what a run takes, or more than the
  /// limit.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  const Clock::time_point start_ = Clock::now();
  double begin_ = 0;  ///< Of the stage.
  const std::size_t limit_;
  const std::uint64_t before_;  ///< Of the process, ahead of the search.
  std::size_t run_ = 0;
  Stage stage_ = Stage::kNone, worst_stage_ = Stage::kNone;
  std::uint64_t worst_ = 0;  ///< Bytes of tensors.
  std::uint64_t said_ = 0;   ///< The most that a stage was said to take.
};

}  // namespace ulpscope
