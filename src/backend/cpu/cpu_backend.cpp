#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <fstream>

#include "backend/backends.h"
#include "backend/cpu/plan.h"
#include "backend/cpu/product.h"
#include "core/instruction_set.h"
#include "ulpscope/error.h"

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

/// As its documentation lists them for the variable.
constexpr std::array<std::string_view, 12> kSetsOfOneDnn{"DEFAULT",
                                                         "SSE41",
                                                         "AVX",
                                                         "AVX2",
                                                         "AVX2_VNNI",
                                                         "AVX2_VNNI_2",
                                                         "AVX512_CORE",
                                                         "AVX512_CORE_VNNI",
                                                         "AVX512_CORE_BF16",
                                                         "AVX512_CORE_FP16",
                                                         "AVX512_CORE_AMX",
                                                         "AVX512_CORE_AMX_FP16"};

class CpuBackend final : public Backend {
 public:
  std::string_view name() const noexcept override { return "cpu"; }
  DeviceDescription device() const override {
    if (onednn_version().empty()) return {processor_name(), {}};
    return {processor_name(), {{"oneDNN", onednn_version()}}};
  }
  std::shared_ptr<const Plan> plan(std::shared_ptr<const Specialization> spec, Schedule schedule, WeightCache& weights,
                                   const IdMap<LayerId, GraphFunction>& subgraphs, const TacticReplay*) const override {
    return std::make_shared<const CpuPlan>(std::move(spec), std::move(schedule), weights, subgraphs);
  }
};

}  // namespace

void check_instructions() {
  check_instruction_set();
  const char* value = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (value == nullptr || *value == '\0' || onednn_version().empty()) return;
  std::string name = value;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  if (std::find(kSetsOfOneDnn.begin(), kSetsOfOneDnn.end(), name) == kSetsOfOneDnn.end())
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("[build] ONEDNN_MAX_CPU_ISA: expected one of {}, got '{}', which oneDNN ignores; try without it",
                    fmt::join(kSetsOfOneDnn, ", "), value));
}

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace ulpscope::cpu
