#include "backend/cpu/program_kernels.h"

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

}  // namespace ulpscope::cpu
