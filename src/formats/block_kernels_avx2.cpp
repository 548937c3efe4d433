#define ULPSCOPE_VECTOR_BYTES 32
#include "formats/block_kernels.inc"

namespace ulpscope {
const BlockKernels& block_kernels_avx2() noexcept { return kKernels; }
}  // namespace ulpscope
