// Which algorithm computes a product or convolution: measured once per GPU and library, then fixed.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "engine/timing_cache.h"

namespace ulpscope::cuda {

/// Kept in memory, and on the disk (kernel_cache.h) for one GPU and these versions of its libraries. Thread-safe;
/// several processes may use one file: what each adds is kept.
class TacticCache {
 public:
  /// `name`: of the GPU and its libraries.
  explicit TacticCache(const std::string& name);
  /// Algorithms are MatrixLibrary::Product::tactic() and ConvolutionPlan::tactic().
  std::optional<MeasuredTactic> find(const std::string& key) const;
  void put(const std::string& key, MeasuredTactic tactic);
  /// All of them under the name, for --save-timing-cache.
  TimingCache measured() const;
  /// Those under the name; warns where there are none.
  void take(const TimingCache& cache);
  /// Writes what was added since the last call.
  void save();

 private:
  void merge(const std::string& text);
  const std::string name_, file_;
  mutable std::mutex mutex_;
  MeasuredTactics tactics_;
  bool changed_ = false;
};

}  // namespace ulpscope::cuda
