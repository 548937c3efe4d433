#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/plan.h"

namespace ulpscope::cpu {
namespace {

class CpuBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cpu"; }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                                   const IdMap<LayerId, GraphFunction>& subgraphs) const override {
    return std::make_shared<const CpuPlan>(std::move(spec), std::move(schedule), weights, subgraphs);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace ulpscope::cpu
