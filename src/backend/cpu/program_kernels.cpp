#include "backend/cpu/program_kernels.h"

#include <array>
#include <map>
#include <mutex>

#include "core/instruction_set.h"

namespace ulpscope::cpu {

const ProgramKernels& program_kernels() {
#if defined(__x86_64__)
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return program_kernels_avx512();
    case InstructionSet::kAvx2:
      return program_kernels_avx2();
    case InstructionSet::kBaseline:
      break;
  }
#endif
  return program_kernels_baseline();
}

Inverse inverse_of(float scale, float least, float most) {
  static std::mutex mutex;
  static std::map<std::array<float, 3>, Inverse> known;
  constexpr std::size_t kMany = 1 << 16;
  const std::lock_guard lock(mutex);
  const auto found = known.find({scale, least, most});
  if (found != known.end()) return found->second;
  if (known.size() >= kMany) known.clear();
  Inverse result;
  result.exists = program_kernels().block.find_inverse(scale, least, most, result.r, result.s);
  return known[{scale, least, most}] = result;
}

}  // namespace ulpscope::cpu
