// Files: mapped for reading, replaced as a whole for writing.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

namespace ulpscope {

/// A file mapped read-only: writing to its bytes ends the program. Pages are read when they are touched. The mapping
/// lives as long as the object; tensors keep it alive through the shared_ptr. What lies behind the end of a file that
/// was cut off reads as zeros (a handler of SIGBUS sees to that; signals from elsewhere go to the handler before it):
/// whoever computes with the bytes asks check_unchanged() before the results are used.
class MappedFile {
 public:
  /// Throws Error(kNotFound) or Error(kIo), naming the path.
  static std::shared_ptr<MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<std::byte> bytes() noexcept { return {data_, size_}; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  const std::filesystem::path& path() const noexcept { return path_; }

  /// Throws Error(kIo), naming the path, if somebody wrote to the file or cut it off since it was opened. A file that
  /// was replaced as a whole, or removed, has not changed: the mapping keeps the old one. Nor has one whose time alone
  /// is another, where hash() has been asked before.
  void check_unchanged() const;
  /// What `make` says of the bytes, which is asked once.
  std::string hash(std::string (*make)(const MappedFile&)) const;
  /// What `read` gives, which takes all that it needs of the bytes. If the file changed meanwhile, that is the error,
  /// whatever else went wrong.
  template <typename Read>
  auto read_whole(Read&& read) const {
    try {
      auto result = read();
      check_unchanged();
      return result;
    } catch (...) {
      check_unchanged();
      throw;
    }
  }
  /// Whether another file, or none, has its name now.
  bool is_replaced() const;

  /// Where these bytes are part of a mapped file, they leave memory until they are touched again; else nothing happens.
  static void release(const void* begin, std::size_t bytes) noexcept;

 private:
  struct Mark;  ///< Tells one state of a file from another.
  struct Entry;
  MappedFile(std::filesystem::path path, std::byte* data, std::size_t size, const Mark& mark);
  std::filesystem::path path_;
  std::byte* data_;
  std::size_t size_;
  std::unique_ptr<Mark> mark_;
  mutable std::mutex mutex_;  ///< Of the time in mark_, and of the hash.
  mutable std::string hash_;
  mutable std::string (*make_hash_)(const MappedFile&) = nullptr;
  Entry* entry_ = nullptr;
};

/// The whole content. Throws Error(kNotFound) or Error(kIo).
std::string read_file(const std::filesystem::path& path);

/// Writes to a temporary name in the same folder, flushes it to the disk and renames it: readers see the old content
/// or the new, never a part, and a full disk loses nothing. Missing parent folders are created. Devices and pipes
/// (/dev/stdout) are written directly. Throws Error(kIo), naming the path and the system's reason. `before_rename` may
/// throw to keep the old content.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path, std::span<const std::string_view> pieces,
                const std::function<void()>& before_rename = {});

}  // namespace ulpscope
