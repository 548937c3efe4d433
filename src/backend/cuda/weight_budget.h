// How many bytes of weights one plan may have on the device.
#pragma once

#include <set>
#include <string>

#include "backend/cuda/lowering.h"

namespace ulpscope::cuda {

/// Counts what one plan asks of a target. What is beyond the limit is counted and not made, so that a message can say
/// how much all of it is.
class WeightBudget final : public TargetInFront {
 public:
  WeightBudget(LoweringTarget& target, std::size_t limit) : TargetInFront(target), limit_(limit) {}
  /// Throws Error(kUnsupported) where all that was asked for is more than the limit; the steps are then of no use.
  void check() const;
  std::size_t bytes() const noexcept { return bytes_; }

  std::shared_ptr<const DeviceMemory> constant(WeightCache& weights, const std::string& key,
                                               const std::function<Tensor()>& make) override;
  std::shared_ptr<const DeviceMemory> matrices(WeightCache& weights, const std::string& key,
                                               std::span<const StoredMatrix> parts, DataType type,
                                               const std::function<Tensor()>& make) override;

 private:
  bool is_beyond() const { return bytes_ > limit_; }
  std::shared_ptr<const DeviceMemory> counted(const std::string& key, std::shared_ptr<const DeviceMemory> memory);

  const std::size_t limit_;
  std::size_t bytes_ = 0;
  std::set<std::string, std::less<>> keys_;
};

}  // namespace ulpscope::cuda
