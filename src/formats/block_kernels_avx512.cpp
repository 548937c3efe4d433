#define ULPSCOPE_VECTOR_BYTES 64
#include "formats/block_kernels.inc"

namespace ulpscope {
const BlockKernels& block_kernels_avx512() noexcept { return kKernels; }
}  // namespace ulpscope
