#include <fmt/format.h>

#include "backend/backends.h"
#include "backend/cuda/cuda_plan.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/runtime.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cuda"; }
  std::string_view body_backend() const noexcept override { return "cpu"; }
  bool has_own_memory() const noexcept override { return true; }
  void start() const override { Runtime::start(); }
  DeviceDescription device() const override {
    DeviceDescription result{Device::get().name(), {{"NVRTC", nvrtc_version()}}};
    const auto lock = Device::get().lock();
    int version = 0;
    driver().driver_version(&version);
    result.libraries["driver"] = fmt::format("{}.{}", version / 1000, version % 1000 / 10);
    result.libraries["cuBLASLt"] = MatrixLibrary::version();
    try {
      result.libraries["cuDNN"] = ConvolutionLibrary::version();
    } catch (const Error&) {
      // Convolutions run without it.
    }
    return result;
  }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                                   const IdMap<LayerId, GraphFunction>& subgraphs,
                                   const TacticReplay* replay) const override {
    return std::make_shared<const CudaPlan>(std::move(spec), std::move(schedule), weights, subgraphs, replay);
  }

  bool measures() const noexcept override { return true; }
  TimingCache measured() const override {
    const auto lock = Device::get().lock();
    return Runtime::get().tactics().measured();
  }
  void take_measured(const TimingCache& cache) const override {
    const auto lock = Device::get().lock();
    Runtime::get().tactics().take(cache);
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace ulpscope::cuda
