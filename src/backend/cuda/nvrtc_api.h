// What is used of NVRTC, declared here: its headers are not needed to build, nor the library to start.
#pragma once

#include <cstddef>

#include "backend/cuda/library.h"

namespace ulpscope::cuda {

// nvrtc.h of CUDA 12 and 13; tests/backend/cuda_declarations.cpp compares with the real one.
using NvrtcProgram = struct OpaqueNvrtcProgram*;
inline constexpr int kDone = 0;  ///< NVRTC_SUCCESS.

/// NVRTC's functions; the library stays open. Throws Error(kUnsupported) when NVRTC is missing.
struct Nvrtc {
  Library library{{"libnvrtc.so.13", "libnvrtc.so.12"}, "nvidia-cuda-nvrtc"};
  int (*version)(int* major, int* minor) = library.function("nvrtcVersion");
  const char* (*error_string)(int) = library.function("nvrtcGetErrorString");
  int (*create)(NvrtcProgram*, const char* source, const char* name, int headers, const char* const*,
                const char* const*) = library.function("nvrtcCreateProgram");
  int (*destroy)(NvrtcProgram*) = library.function("nvrtcDestroyProgram");
  int (*compile)(NvrtcProgram, int options, const char* const*) = library.function("nvrtcCompileProgram");
  int (*cubin_size)(NvrtcProgram, std::size_t*) = library.function("nvrtcGetCUBINSize");
  int (*cubin)(NvrtcProgram, char*) = library.function("nvrtcGetCUBIN");
  int (*log_size)(NvrtcProgram, std::size_t*) = library.function("nvrtcGetProgramLogSize");
  int (*log)(NvrtcProgram, char*) = library.function("nvrtcGetProgramLog");
};

}  // namespace ulpscope::cuda
