// What NVRTC and measurements gave before, on the disk.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ulpscope::cuda {

/// 128 bits of XXH3, as 32 hexadecimal digits: names what has these bytes.
std::string hash_of(std::string_view bytes);

/// ULPSCOPE_CACHE, else XDG_CACHE_HOME/ulpscope, else ~/.cache/ulpscope, else empty: nothing is kept.
std::filesystem::path cache_folder();

/// The machine code of a source: from the disk, or compiled and put there. Several processes may do so at once: files
/// are replaced as a whole. A file that is damaged, or that another source or version made, is made again.
std::string cached_code(const std::string& source, std::string_view architecture);

/// While it lives, no other process has one: for what is read, changed and written again.
class CacheLock {
 public:
  CacheLock();
  ~CacheLock();
  CacheLock(const CacheLock&) = delete;
  CacheLock& operator=(const CacheLock&) = delete;

 private:
  int file_ = -1;  ///< The folder itself; -1: it is not there, and nothing will be written.
};

/// A text by name, as `put_cached` left it; empty when it is not there, damaged, or not readable.
std::string get_cached(const std::string& name);
/// Keeps a text; says so once and goes on where the disk refuses.
void put_cached(const std::string& name, std::string_view text);

}  // namespace ulpscope::cuda
