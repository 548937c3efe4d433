// What kernels of sm_90 share whose warp groups do different work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// Functions on addresses in shared memory: barriers (init_barrier, expect, arrive_here, wait), boxes of matrices
/// (TensorMap, load_box), publish(), words (load_word, store_word, store_pair), and descriptors of operands for wgmma
/// (box_at, turned_box_at).
const char* warp_group_functions();

/// A function `name`(sum (&d)[columns / 2], u64 a, u64 b, int add) on all threads of a warp group: 64 rows of d are a
/// b, or that more with `add`, for descriptors of 32 bytes of k of 16-bit floats, fp8 (e4m3) or int8. Sums are float,
/// or int of int8.
std::string multiply_code(std::string_view name, DataType type, std::int64_t columns);

/// A function `name`(float (&d)[columns / 2]): all products of this warp group are done, and their sums are in d.
std::string await_code(std::string_view name, std::int64_t columns);

/// For a text of assembly: `count` operands from %first on, and elements of the array d that are read and written.
std::string operands_from(std::int64_t first, std::int64_t count);
std::string sums_of_d(std::int64_t count, char kind = 'f');

}  // namespace ulpscope::cuda
