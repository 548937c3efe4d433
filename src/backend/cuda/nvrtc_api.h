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
  Nvrtc();
  Library library;
  int (*version)(int* major, int* minor);
  const char* (*error_string)(int);
  int (*create)(NvrtcProgram*, const char* source, const char* name, int headers, const char* const*,
                const char* const*);
  int (*destroy)(NvrtcProgram*);
  int (*compile)(NvrtcProgram, int options, const char* const*);
  int (*cubin_size)(NvrtcProgram, std::size_t*);
  int (*cubin)(NvrtcProgram, char*);
  int (*log_size)(NvrtcProgram, std::size_t*);
  int (*log)(NvrtcProgram, char*);
};

}  // namespace ulpscope::cuda
