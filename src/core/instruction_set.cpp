#include "core/instruction_set.h"

#include <strings.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "core/messages.h"

namespace ulpscope {
namespace {

constexpr std::array kSets{InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512};

std::string_view asked_for() noexcept {
  const char* value = std::getenv("ULPSCOPE_ISA");
  return value == nullptr ? "" : value;
}

std::optional<InstructionSet> set_of(std::string_view name) noexcept {
  for (const InstructionSet set : kSets)
    if (name_of(set) == name) return set;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(InstructionSet set) noexcept {
  constexpr std::array<std::string_view, kSets.size()> kNames{"baseline", "avx2", "avx512"};
  return kNames[static_cast<std::size_t>(set)];
}

#if defined(__x86_64__)
constexpr std::string_view kArchitecture = "x86-64";
#elif defined(__aarch64__)
constexpr std::string_view kArchitecture = "aarch64";
#else
constexpr std::string_view kArchitecture = "its architecture";
#endif

InstructionSet most_of_processor() noexcept {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw"))
    return InstructionSet::kAvx512;
  // Each that has AVX2 has F16C, whose name not every compiler knows.
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kBaseline;
}

InstructionSet instruction_set() noexcept {
  static const InstructionSet chosen = [] {
    const InstructionSet most = most_of_processor();
    return std::min(set_of(asked_for()).value_or(most), most);
  }();
  return chosen;
}

bool has_avx_vnni() noexcept {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#else
  return false;
#endif
}

bool allows_byte_products() noexcept {
  static const bool allows = [] {
    const char* value = std::getenv("ONEDNN_MAX_CPU_ISA");
    const auto is = [&](const char* name) { return value != nullptr && ::strcasecmp(value, name) == 0; };
    return !is("SSE41") && !is("AVX") && !is("AVX2") && !is("AVX512_CORE");
  }();
  return allows;
}

void check_instruction_set() {
  const std::string_view name = asked_for();
  if (name.empty()) return;
  const std::optional<InstructionSet> set = set_of(name);
  if (!set)
    throw invalid_argument("[build] ULPSCOPE_ISA: expected baseline, avx2 or avx512, got '{}'; try without it", name);
  if (*set != InstructionSet::kBaseline && kArchitecture != "x86-64")
    throw unsupported(
        "[build] ULPSCOPE_ISA: expected baseline, which is all that kernels are made of on {}, got '{}', which "
        "processors of x86-64 have; try without it",
        kArchitecture, name);
  if (*set > most_of_processor())
    throw unsupported(
        "[build] ULPSCOPE_ISA: expected instructions that this processor has, got '{}', and it has no more than {}; "
        "try ULPSCOPE_ISA={} or without it",
        name, name_of(most_of_processor()), name_of(most_of_processor()));
}

}  // namespace ulpscope
