// CUDA source that was made for one step of a plan, and how it is launched.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ulpscope/data_type.h"

namespace ulpscope::cuda {

/// A matrix of 16-bit floats, fp8 or int8 that a kernel of sm_90 reads in boxes of `box_rows` by 128 bytes, with words
/// swapped within these and zeros outside of the matrix.
struct BoxedMatrix {
  /// Of many matrices: how many there are, and from one to the next in elements, a multiple of 16 bytes.
  struct Many {
    std::int64_t count = 1, stride = 0;
  };
  DataType type = DataType::kFloat16;
  std::int64_t rows = 0, columns = 0, row_stride = 0;  ///< The stride in elements, a multiple of 16 bytes.
  int box_rows = 0;
  std::vector<Many> many;  ///< The inner ones first; boxes have two, then one more coordinate for each.
  int argument = 0;        ///< Where its address is among the arguments, if the kernel has that, too.
};

/// A kernel `extern "C" __global__ void kernel(...)` whose arguments are pointers: of the inputs, then of the outputs.
struct KernelSource {
  std::string source;  ///< Complete: prelude() and all. Equal sources are compiled once.
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned block = 1;              ///< Threads.
  unsigned shared = 0;             ///< Bytes of dynamic shared memory.
  std::vector<BoxedMatrix> boxed;  ///< Descriptors of them come before the pointers.
};

/// What every source begins with: begin(), which a kernel calls before it touches memory and which waits for the
/// kernels before it; conversions between element types as inline PTX (NVRTC brings no headers), loads and
/// stores of eight elements at once, the functions of instructions.
const std::string& prelude();

/// With `by` in the place of the first `word`. REQUIRES: there is one.
std::string replaced(std::string text, std::string_view word, std::string_view by);

}  // namespace ulpscope::cuda
