#include "runtime/device_plans.h"

#include "engine/fusion.h"

namespace ulpscope {

std::shared_ptr<const DevicePlan> DevicePlans::plan_for(const std::vector<Shape>& shapes, Executable& executable,
                                                        const Network& network, const BuildOptions& options) {
  if (!network.bodies().empty()) return nullptr;  // The executable runs them, on the CPU.
  const std::lock_guard lock(mutex_);
  auto found = plans_.find(shapes);
  if (found == nullptr) {
    const auto spec = executable.specialization(shapes);
    auto made = std::make_shared<Entry>();
    made->weights = std::make_unique<WeightCache>(executable.weights());
    made->parts = std::make_shared<PlanParts>(
        PlanParts{find_backend(options.backend), executable.assignment(), options.fusion, *made->weights,
                  IdMap<LayerId, GraphFunction>(network.layers.size()), options.tactic_replay});
    made->plan = make_device_plan(*find_device_backend(options.backend), spec,
                                  fuse(*spec, executable.assignment(), options.fusion), *made->parts);
    plans_.put(shapes, found = std::move(made));
  }
  return {found, found->plan.get()};
}

}  // namespace ulpscope
