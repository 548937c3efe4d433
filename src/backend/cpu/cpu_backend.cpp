#include "backend/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <fstream>
#include <oneapi/dnnl/dnnl.hpp>

#include "backend/cpu/plan.h"

namespace ulpscope::cpu {
namespace {

/// As Linux calls it; other systems do not say.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const auto at = line.find(": "); line.starts_with("model name") && at != std::string::npos)
      return line.substr(at + 2);
  return "CPU";
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cpu"; }
  DeviceDescription device() const override {
    const dnnl_version_t& version = *dnnl::version();
    return {processor_name(), {{"oneDNN", fmt::format("{}.{}.{}", version.major, version.minor, version.patch)}}};
  }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                                   const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay*) const override {
    return std::make_shared<const CpuPlan>(std::move(spec), std::move(schedule), weights, subgraphs);
  }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace ulpscope::cpu
