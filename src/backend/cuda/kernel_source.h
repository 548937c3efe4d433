// CUDA source that was made for one step of a plan, and how it is launched.
#pragma once

#include <array>
#include <string>

namespace ulpscope::cuda {

/// A kernel `extern "C" __global__ void kernel(...)` whose arguments are pointers: of the inputs, then of the outputs.
struct KernelSource {
  std::string source;  ///< Complete: prelude() and all. Equal sources are compiled once.
  std::array<unsigned, 3> grid{1, 1, 1};
  unsigned block = 1;   ///< Threads.
  unsigned shared = 0;  ///< Bytes of dynamic shared memory.
};

/// What every source begins with: conversions between element types as inline PTX (NVRTC brings no headers), loads and
/// stores of eight elements at once, the functions of instructions.
const std::string& prelude();

}  // namespace ulpscope::cuda
