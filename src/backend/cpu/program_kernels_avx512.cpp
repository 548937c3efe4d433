#define ULPSCOPE_ISA_NAME "avx512"
#define ULPSCOPE_VECTOR_BYTES 64
#include "backend/cpu/program_kernels.inc"

namespace ulpscope::cpu {
const ProgramKernels& program_kernels_avx512() { return kKernels; }
}  // namespace ulpscope::cpu
