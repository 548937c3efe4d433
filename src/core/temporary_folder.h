// A folder for files that nobody keeps.
#pragma once

#include <filesystem>

namespace ulpscope {

/// Made under a name of its own; removed, with everything in it, when the object goes.
class TemporaryFolder {
 public:
  /// The name begins with `prefix`, in that folder, which is made if it is not there. Throws Error(kIo).
  explicit TemporaryFolder(const std::filesystem::path& prefix);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace ulpscope
