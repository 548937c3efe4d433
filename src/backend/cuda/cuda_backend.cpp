#include "backend/cuda/cuda_backend.h"

#include "backend/cuda/cuda_plan.h"

namespace ulpscope::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cuda"; }
  std::string_view body_backend() const noexcept override { return "cpu"; }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                                   const IdMap<LayerId, GraphFunction>& subgraphs) const override {
    return std::make_shared<const CudaPlan>(std::move(spec), std::move(schedule), weights, subgraphs);
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace ulpscope::cuda
