// What a search takes beside one run, stage by stage, and what it says where that is much.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace ulpscope {

/// Not thread-safe. One is there at a time: peaks are those of the process.
class MemoryWatch {
 public:
  explicit MemoryWatch(std::size_t limit);

  /// The stage before has ended; warns where its tensors were more than the limit.
  void enter(const std::string& stage);
  /// What one run holds.
  void set_run(std::size_t bytes) noexcept { run_ = bytes; }
  /// Ends the last stage. Says what took the memory where that is several times what a run takes, or more than the
  /// limit.
  void finish();

 private:
  const std::size_t limit_;
  const std::uint64_t before_;  ///< Of the process, ahead of the search.
  std::size_t run_ = 0;
  std::string stage_, worst_stage_;
  std::uint64_t worst_ = 0;  ///< Bytes of tensors.
  std::uint64_t said_ = 0;   ///< The most that a stage was said to take.
};

}  // namespace ulpscope
