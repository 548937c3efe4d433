// Kernels that take each element of a few operands once, and compute nothing: what their sources have in common.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/cuda/dimensions.h"
#include "backend/cuda/kernel_source.h"
#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

struct MovedOperand {
  DataType type = DataType::kFloat32;
  bool may_stay = false;          ///< May be one element for a whole vector.
  std::int64_t extra_stride = 0;  ///< Another multiple by which vectors move.
};

/// Operands p0, p1, ... of a kernel, the output last, over common dimensions.
struct MovedOperands {
  Dimensions dims;  ///< canonical().
  std::vector<MovedOperand> operands;
};

/// Indices and offsets need 64 bits.
bool needs_wide(const Dimensions& dims);

/// The unsigned integer of the same size, for elements that are moved as they are.
DataType bits_type(DataType type);

/// float32 holds every value of the type, and vectors of it can be loaded and stored.
bool has_float_path(DataType type);

/// Input and output have the same elements side by side.
bool is_word_copy(const MovedOperands& moved);

/// "extern "C" __global__ void kernel(const u8* p0, ..., u8* pN) {".
std::string moving_header(std::size_t operands, int threads);

/// An address: of element e of the vector, of an operand.
using ElementAddress = std::function<std::string(std::size_t operand, int element)>;
/// The statements for `vector` elements, of which a thread has one vector.
using MovingBody = std::function<std::string(int vector, const ElementAddress& at)>;

/// One vector of up to `most` elements per thread where operands lie so, else one element; both if only addresses,
/// which are known when the kernel runs, can tell.
KernelSource moving_kernel(const MovedOperands& moved, int most, const MovingBody& body);

/// "float NAME[vector];" and its load; the store of such an array.
std::string load_vector_code(const MovedOperands& moved, std::size_t operand, int vector, const std::string& name,
                             const ElementAddress& at);
std::string store_vector_code(const MovedOperands& moved, std::size_t operand, int vector, const std::string& name,
                              const ElementAddress& at);

}  // namespace ulpscope::cuda
