// What kernels of sm_90 share whose warp groups do different work.
#pragma once

namespace ulpscope::cuda {

/// Functions on addresses in shared memory: barriers (init_barrier, expect, arrive_here, wait), boxes of matrices
/// (TensorMap, load_box), publish(), words (load_word, store_word, store_pair), and descriptors of operands for wgmma
/// (box_at, turned_box_at).
const char* warp_group_functions();

}  // namespace ulpscope::cuda
