#define ULPSCOPE_ISA_NAME "avx2"
#define ULPSCOPE_VECTOR_BYTES 32
#include "backend/cpu/program_kernels.inc"

namespace ulpscope::cpu {
const ProgramKernels& program_kernels_avx2() { return kKernels; }
}  // namespace ulpscope::cpu
