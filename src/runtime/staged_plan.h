// Networks in which values decide shapes (durations, masks, counts): planned in stages, each when its shapes are known.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/device_plan.h"

namespace ulpscope {

/// What a plan is made of, besides the specialization. Referred to by plans in stages, which keep it alive.
struct PlanParts {
  const Backend& backend;
  Assignment assignment;
  Fusion fusion;
  WeightCache& weights;  ///< Outlives the plans.
  IdMap<LayerId, GraphFunction> subgraphs;
  std::shared_ptr<const TacticReplay> replay;  ///< As in Backend::plan.
};

/// The backend's plan for these groups. Where products or convolutions have shapes that depend on values, one that runs
/// what comes before them, and then a plan for the shapes that came out; these are kept per shapes, the last 16 of
/// them. What is rounded is what the groups say, whatever else becomes known; only where nothing is rounded at all,
/// larger groups are made.
std::shared_ptr<const Plan> make_plan(std::shared_ptr<const Specialization> spec, Grouping grouping,
                                      std::shared_ptr<const PlanParts> parts);
/// The same for tensors in the memory of the backend's device; null where values decide shapes, and where
/// DeviceBackend::plan() is.
std::shared_ptr<const DevicePlan> make_device_plan(const DeviceBackend& backend,
                                                   std::shared_ptr<const Specialization> spec, Grouping grouping,
                                                   const PlanParts& parts);

}  // namespace ulpscope
