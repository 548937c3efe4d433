// A user's metric over the outputs of all samples, in the Python worker.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compare/tensor_map.h"
#include "runners/script_host.h"

namespace ulpscope {

/// `metric(golden, candidate)` of a script. The host must outlive it. Methods may be called from any thread.
class ScriptMetric {
 public:
  /// Per output, in the function's order; one entry with an empty name when it returned a number. Never NaN.
  using Values = std::vector<std::pair<std::string, double>>;
  struct Result {
    Values values;
    bool higher_is_better = false;  ///< The function's attribute of that name.
    Values best;                    ///< metric(golden, golden), where higher is better.
  };

  ScriptMetric(ScriptHost& host, ScriptName script);
  ~ScriptMetric();
  ScriptMetric(const ScriptMetric&) = delete;
  ScriptMetric& operator=(const ScriptMetric&) = delete;

  const ScriptName& script() const noexcept { return script_; }

  /// Golden outputs that were seen before (the same tensors: names, shapes and addresses) are not sent again; the last
  /// few sets are kept. Throws Error as ScriptHost does.
  Result evaluate(std::span<const TensorMap> golden, std::span<const TensorMap> candidate);

 private:
  /// Golden outputs that a worker holds. Holding their tensors here keeps addresses from being used again.
  struct Kept {
    std::shared_ptr<Worker> worker;
    std::int64_t handle = 0;
    std::vector<TensorMap> golden;
    bool higher_is_better = false;
    Values best;
  };
  Kept& keep(std::span<const TensorMap> golden);
  void forget(const Kept& kept) noexcept;

  ScriptHost& host_;
  ScriptName script_;
  std::mutex mutex_;
  std::vector<Kept> kept_;  ///< The one used last at the end.
};

}  // namespace ulpscope
