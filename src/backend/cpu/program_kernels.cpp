#include "backend/cpu/program_kernels.h"

#include <cstdlib>
#include <string_view>

namespace ulpscope::cpu {
namespace {

const ProgramKernels& choose() {
#if defined(__x86_64__)
  const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const char* forced = std::getenv("ULPSCOPE_ISA");
  const std::string_view name = forced == nullptr ? "" : forced;
  if (name == "baseline") return program_kernels_baseline();
  if (avx512 && name != "avx2") return program_kernels_avx512();
  if (avx2) return program_kernels_avx2();
#endif
  return program_kernels_baseline();
}

}  // namespace

const ProgramKernels& program_kernels() {
  static const ProgramKernels& kernels = choose();
  return kernels;
}

}  // namespace ulpscope::cpu
