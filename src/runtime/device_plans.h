// Plans between tensors in the memory of a device, per input shapes, beside those of an executable.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backend/device_plan.h"
#include "runtime/executable.h"
#include "runtime/recently_used.h"
#include "runtime/staged_plan.h"

namespace ulpscope {

/// Made when they are asked for, and kept.
class DevicePlans {
 public:
  /// With the assignment, specializations and weights of `executable`; null where tensors have to pass through the
  /// CPU's memory. REQUIRES: find_device_backend(options.backend).
  std::shared_ptr<const DevicePlan> plan_for(const std::vector<Shape>& shapes, Executable& executable,
                                             const Network& network, const BuildOptions& options);

 private:
  struct Entry {
    std::unique_ptr<WeightCache> weights;
    std::shared_ptr<const PlanParts> parts;
    std::shared_ptr<const DevicePlan> plan;
  };
  std::mutex mutex_;  ///< One thread makes a plan while others wait.
  RecentlyUsed<std::shared_ptr<const Entry>> plans_{16};
};

}  // namespace ulpscope
