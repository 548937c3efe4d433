// Which algorithm computes a product or convolution: measured once per GPU and library, then fixed.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>

namespace ulpscope::cuda {

struct Tactic {
  std::string algorithm;    ///< MatrixLibrary::Product::tactic(), ConvolutionPlan::tactic().
  double microseconds = 0;  ///< Of one call, as measured.
};

/// Kept in memory, and on the disk (kernel_cache.h) for one GPU and these versions of its libraries. Thread-safe;
/// several processes may use one file: what each adds is kept.
class TacticCache {
 public:
  /// `name`: of the GPU and its libraries.
  explicit TacticCache(const std::string& name);
  std::optional<Tactic> find(const std::string& key) const;
  void put(const std::string& key, Tactic tactic);
  /// Writes what was added since the last call.
  void save();

 private:
  void merge(const std::string& text);
  const std::string file_;
  mutable std::mutex mutex_;
  std::map<std::string, Tactic> tactics_;
  bool changed_ = false;
};

}  // namespace ulpscope::cuda
