// NVRTC: CUDA source to machine code, at run time and without a GPU.
#pragma once

#include <string>
#include <string_view>

namespace ulpscope::cuda {

/// Machine code (a cubin) for an architecture, "sm_90". Multiplications and additions are not contracted, subnormals
/// are kept, divisions and roots are correctly rounded. Thread-safe.
/// Throws Error(kUnsupported) when NVRTC is missing, Error(kBuild) with the compiler's words and the path of the saved
/// source when it does not compile.
std::string compile(const std::string& source, std::string_view architecture);

/// "13.0"; throws as `compile` when NVRTC is missing.
std::string nvrtc_version();

}  // namespace ulpscope::cuda
