#include "backend/cuda/nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <memory>

#include "backend/cuda/library.h"
#include "core/file.h"
#include "ulpscope/error.h"

namespace ulpscope::cuda {
namespace {

// nvrtc.h of CUDA 12 and 13; tests/backend/cuda/declarations_test.cpp compares with the real one.
using NvrtcProgram = struct OpaqueNvrtcProgram*;
constexpr int kSuccess = 0;

struct Nvrtc {
  Nvrtc() : library({"libnvrtc.so.13", "libnvrtc.so.12"}, "nvidia-cuda-nvrtc") {
    library.get("nvrtcVersion", version);
    library.get("nvrtcGetErrorString", error_string);
    library.get("nvrtcCreateProgram", create);
    library.get("nvrtcDestroyProgram", destroy);
    library.get("nvrtcCompileProgram", compile);
    library.get("nvrtcGetCUBINSize", cubin_size);
    library.get("nvrtcGetCUBIN", cubin);
    library.get("nvrtcGetProgramLogSize", log_size);
    library.get("nvrtcGetProgramLog", log);
  }
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

const Nvrtc& nvrtc() {
  static const Nvrtc functions;
  return functions;
}

void check(int result, const char* what) {
  if (result != kSuccess)
    throw Error(ErrorCode::kBuild,
                fmt::format("[build] backend 'cuda': NVRTC could not {}: {}", what, nvrtc().error_string(result)));
}

/// Where the source was put that did not compile.
std::string save(const std::string& source) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("ulpscope_kernel_{}.cu", getpid());
  try {
    write_file(path, source);
    return path.string();
  } catch (const Error&) {
    return "nowhere: the folder for temporary files cannot be written";
  }
}

}  // namespace

std::string nvrtc_version() {
  int major = 0, minor = 0;
  check(nvrtc().version(&major, &minor), "tell its version");
  return fmt::format("{}.{}", major, minor);
}

std::string compile(const std::string& source, std::string_view architecture) {
  NvrtcProgram program = nullptr;
  check(nvrtc().create(&program, source.c_str(), "ulpscope.cu", 0, nullptr, nullptr), "take a source");
  const std::unique_ptr<NvrtcProgram, void (*)(NvrtcProgram*)> owner(&program,
                                                                     [](NvrtcProgram* p) { nvrtc().destroy(p); });
  const std::string target = fmt::format("--gpu-architecture={}", architecture);
  const std::array<const char*, 4> options{target.c_str(), "--std=c++17", "-default-device", "--fmad=false"};
  if (const int result = nvrtc().compile(program, 4, options.data()); result != kSuccess) {
    std::size_t size = 0;
    check(nvrtc().log_size(program, &size), "give its log");
    std::string log(size, '\0');
    check(nvrtc().log(program, log.data()), "give its log");
    throw Error(ErrorCode::kBuild,
                fmt::format("[build] backend 'cuda': a generated kernel does not compile for {} ({}); its source is in "
                            "{}; NVRTC says: {}",
                            architecture, nvrtc().error_string(result), save(source), log.c_str()));
  }
  std::size_t size = 0;
  check(nvrtc().cubin_size(program, &size), "give its code");
  std::string code(size, '\0');
  check(nvrtc().cubin(program, code.data()), "give its code");
  return code;
}

}  // namespace ulpscope::cuda
