// Work for other processes, as bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "ulpscope/tensor.h"

namespace ulpscope {

/// One piece of work. Pieces of the same sample are best done where that sample was worked on before.
struct WorkItem {
  std::size_t sample = 0;
  Tensor task;  ///< uint8.
};

/// Hands work to processes that all do the same with it: who does it makes no difference to its result.
class WorkQueue {
 public:
  virtual ~WorkQueue() = default;
  /// Before anything else. `network` is a file, `setup` what each process needs beside it to work on so many
  /// samples.
  /// Returns when somebody is there to work; `meanwhile` as in run().
  virtual void start(const std::filesystem::path& network, const Tensor& setup, std::size_t samples,
                     const std::function<void()>& meanwhile) = 0;
  /// The results in the order of the items, uint8. What a lost process had is done again by another. `meanwhile` is
  /// called several times a second, and ends the call by throwing. Throws Error; SearchInterrupted where nobody is left
  /// to do it.
  virtual std::vector<Tensor> run(std::span<const WorkItem> items, const std::function<void()>& meanwhile) = 0;
  /// Items that `run` may get next. They are done where nothing else is to be done; those of an earlier call that have
  /// not begun are forgotten.
  virtual void expect(std::span<const WorkItem> items) = 0;
};

}  // namespace ulpscope
