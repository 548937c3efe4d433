#define ULPSCOPE_ISA_NAME "baseline"
#define ULPSCOPE_VECTOR_BYTES 16
#include "backend/cpu/program_kernels.inc"

namespace ulpscope::cpu {
const ProgramKernels& program_kernels_baseline() { return kKernels; }
}  // namespace ulpscope::cpu
