#define ULPSCOPE_VECTOR_BYTES 16
#include "formats/block_kernels.inc"

namespace ulpscope {
const BlockKernels& block_kernels_baseline() noexcept { return kKernels; }
}  // namespace ulpscope
