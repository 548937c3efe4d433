#include "backend/cuda/kernel_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cstdlib>

#include "backend/cuda/nvrtc.h"
#include "core/file.h"
#include "ulpscope/error.h"
#include "ulpscope/log.h"

namespace ulpscope::cuda {
namespace {

constexpr std::string_view kMagic = "ulpscope cuda cache 1\n";

}  // namespace

std::string hash_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::filesystem::path cache_folder() {
  if (const char* own = std::getenv("ULPSCOPE_CACHE"); own != nullptr) return own;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != 0)
    return std::filesystem::path(xdg) / "ulpscope";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0)
    return std::filesystem::path(home) / ".cache" / "ulpscope";
  return {};
}

CacheLock::CacheLock() {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return;
  std::error_code none;
  std::filesystem::create_directories(folder, none);
  file_ = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file_ >= 0) flock(file_, LOCK_EX);
}

CacheLock::~CacheLock() {
  if (file_ >= 0) close(file_);
}

std::string get_cached(const std::string& name) {
  const std::filesystem::path folder = cache_folder();
  std::error_code none;
  if (folder.empty() || !std::filesystem::exists(folder / name, none)) return {};
  try {
    const std::string file = read_file(folder / name);
    const std::size_t header = kMagic.size() + 33;
    if (!file.starts_with(kMagic) || file.size() < header) return {};
    const std::string_view content = std::string_view(file).substr(header);
    return file.substr(kMagic.size(), 32) == hash_of(content) ? std::string(content) : std::string();
  } catch (const Error&) {
    return {};
  }
}

void put_cached(const std::string& name, std::string_view text) {
  const std::filesystem::path folder = cache_folder();
  if (folder.empty()) return;
  const std::string hash = hash_of(text) + "\n";
  try {
    write_file(folder / name, std::array<std::string_view, 3>{kMagic, hash, text});
  } catch (const Error& error) {
    static const bool said = [&] {
      log(LogLevel::kWarning,
          fmt::format("backend 'cuda': compiled kernels and timings are not kept: {}", error.what()));
      return true;
    }();
    static_cast<void>(said);
  }
}

std::string cached_code(const std::string& source, std::string_view architecture) {
  const std::string name = fmt::format(
      "{}-{}.cubin", hash_of(fmt::format("{}\n{}\n{}", nvrtc_version(), architecture, source)), architecture);
  if (std::string code = get_cached(name); !code.empty()) return code;
  std::string code = compile(source, architecture);
  put_cached(name, code);
  return code;
}

}  // namespace ulpscope::cuda
