#include "backend/cuda/nvrtc.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "backend/cuda/nvrtc_api.h"
#include "core/file.h"
#include "core/messages.h"

namespace ulpscope::cuda {

namespace {

const Nvrtc& nvrtc() {
  static const Nvrtc functions;
  return functions;
}

void check_nvrtc(int result, const char* what) {
  if (result != kDone)
    throw error_of(ErrorCode::kBuild, "[build] backend 'cuda': NVRTC could not {}: {}", what,
                   nvrtc().error_string(result));
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
  check_nvrtc(nvrtc().version(&major, &minor), "tell its version");
  return fmt::format("{}.{}", major, minor);
}

std::string compile(const std::string& source, std::string_view architecture) {
  NvrtcProgram program = nullptr;
  check_nvrtc(nvrtc().create(&program, source.c_str(), "ulpscope.cu", 0, nullptr, nullptr), "take a source");
  const std::unique_ptr<NvrtcProgram, void (*)(NvrtcProgram*)> owner(&program,
                                                                     [](NvrtcProgram* p) { nvrtc().destroy(p); });
  const std::string target = fmt::format("--gpu-architecture={}", architecture);
  std::vector<const char*> options{target.c_str(), "--std=c++17", "-default-device", "--fmad=false", "-w"};
  int major = 0, minor = 0;
  check_nvrtc(nvrtc().version(&major, &minor), "tell its version");
  if (major >= 13) options.push_back("-minimal");  // Without textures and the device's runtime: 5 ms less a kernel.
  if (const int result = nvrtc().compile(program, static_cast<int>(options.size()), options.data()); result != kDone) {
    std::size_t size = 0;
    check_nvrtc(nvrtc().log_size(program, &size), "give its log");
    std::string log(size, '\0');
    check_nvrtc(nvrtc().log(program, log.data()), "give its log");
    throw error_of(
        ErrorCode::kBuild,
        "[build] backend 'cuda': a generated kernel does not compile for {} ({}); its source is in {}; NVRTC says: {}",
        architecture, nvrtc().error_string(result), save(source), log.c_str());
  }
  std::size_t size = 0;
  check_nvrtc(nvrtc().cubin_size(program, &size), "give its code");
  std::string code(size, '\0');
  check_nvrtc(nvrtc().cubin(program, code.data()), "give its code");
  return code;
}

}  // namespace ulpscope::cuda
