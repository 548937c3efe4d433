// What the libFuzzer targets share. A reader may refuse its input by an Error of the right kind; everything else that
// it throws, like what the sanitizers see, is a finding.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "core/file.h"
#include "ulpscope/error.h"

namespace ulpscope::fuzz {

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Prints and ends the process, which libFuzzer takes for a finding.
[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "FINDING: %s\n", what.c_str());
  std::abort();
}

/// Calls `read`; an Error of another code than `allowed`, or one that says next to nothing, is a finding.
template <typename Read>
bool reads(std::initializer_list<ErrorCode> allowed, Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    if (std::find(allowed.begin(), allowed.end(), error.code()) == allowed.end())
      finding("an error of code " + std::to_string(static_cast<int>(error.code())) + ": " + message);
    if (message.size() < 10) finding("an unhelpful message: " + message);
    return false;
  }
}

/// A folder of this process, in memory where the system has such a place; removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp") + std::string("/fuzz.XXXXXX");
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ulpscope::fuzz
